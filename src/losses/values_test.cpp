// Targets with a volume for each channel, of which a voxel may be in several: affinities, one-hot classes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "losses/loss_test_terms.h"

namespace vox {
namespace {

constexpr int64_t kChannels = 3;

Case case_of(const std::string& loss, const at::Tensor& target, const at::Tensor& mask) {
  Case c;
  c.loss.terms = {term(loss)};
  c.loss.terms[0].target = "affinity";
  c.channels = target.size(1);
  c.targets.label = at::zeros({2, 1, 6, 7, 8}, at::kByte);
  c.targets.mask = mask;
  c.targets.extra["affinity"] = target;
  return c;
}

at::Tensor blocks() {  // that overlap, so that a softmax could never be right
  at::Tensor target = at::zeros({2, kChannels, 6, 7, 8}, at::kByte);
  for (int64_t channel = 0; channel < kChannels; ++channel) target.select(1, channel).narrow(3, channel, 4).fill_(1);
  target[1].narrow(1, 0, 1).fill_(0);
  return target;
}

TEST(LossesOfValues, EveryLossIsTheMeanOverChannelsOfTheLossOfOne) {
  for (const LossEntry& entry : all_losses()) {
    if (entry.regression || entry.name == "cross_entropy") continue;
    for (const bool masked : {false, true}) {
      torch::manual_seed(31);
      at::Tensor logits = at::randn({2, kChannels, 6, 7, 8}, at::kDouble), target = blocks();
      if (entry.name == "erosion_consistency") {  // compares gaps of all channels together: they are made alike
        logits = logits.narrow(1, 0, 1).expand_as(logits);
        target = target.narrow(1, 0, 1).expand_as(target);
      }
      const at::Tensor mask = masked ? at::randint(0, 5, {2, 1, 6, 7, 8}).ne(0).to(at::kByte) : at::Tensor();
      double mean = 0;
      for (int64_t channel = 0; channel < kChannels; ++channel)
        mean += case_of(entry.name, target.narrow(1, channel, 1).contiguous(), mask)
                    .total(logits.narrow(1, channel, 1).contiguous())
                    .item<double>() /
                kChannels;
      const Case together = case_of(entry.name, target.contiguous(), mask);
      EXPECT_NEAR(together.total(logits.contiguous()).item<double>(), mean, 1e-6 * mean) << entry.name << masked;
    }
  }
}

TEST(LossesOfValues, DiceAndFocalAreTheirFormulasOfASigmoid) {
  torch::manual_seed(32);
  const at::Tensor logits = at::randn({2, kChannels, 6, 7, 8}, at::kDouble), target = blocks();
  const at::Tensor p = logits.sigmoid(), t = target.to(at::kDouble);
  const at::Tensor both = (p * t).sum({2, 3, 4}), either = (p + t).sum({2, 3, 4});
  EXPECT_NEAR(case_of("dice", target, {}).total(logits).item<double>(),
              (1 - (2 * both + 1e-5) / (either + 1e-5)).mean().item<double>(), 1e-12);
  const at::Tensor of_truth = at::where(t > 0, p, 1 - p);
  EXPECT_NEAR(case_of("focal", target, {}).total(logits).item<double>(),
              ((1 - of_truth).square() * of_truth.log()).neg().mean().item<double>(), 1e-12);
}

TEST(LossesOfValues, EveryLossIsSmallestWhenEachChannelIsRight) {
  const at::Tensor target = blocks();
  const at::Tensor right = (target.to(at::kDouble) * 2 - 1) * 10;
  for (const LossEntry& entry : all_losses()) {
    if (entry.regression || entry.name == "cross_entropy" || entry.name == "boundary") continue;  // that falls below 0
    const Case c = case_of(entry.name, target, {});
    EXPECT_LT(c.total(right).item<double>(), 1e-3) << entry.name;
  }
}

TEST(LossesOfValues, CrossEntropySaysWhatItIsFor) {
  try {
    case_of("cross_entropy", blocks(), {}).total(at::randn({2, kChannels, 6, 7, 8}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("use bce"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace vox
