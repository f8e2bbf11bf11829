// Targets with a volume for each channel, of which a voxel may be in several: affinities, one-hot classes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

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
    if (entry.regression || entry.needs_classes) continue;
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
    if (entry.regression || entry.needs_classes || entry.name == "boundary") continue;  // that falls below 0
    const Case c = case_of(entry.name, target, {});
    EXPECT_LT(c.total(right).item<double>(), 1e-3) << entry.name;
  }
}

// By a value below 0 (integers) or by NaN.
at::Tensor with_unknown(const at::Tensor& target, const at::Tensor& known, const LossEntry& entry) {
  const at::Tensor values = target.to(entry.regression ? at::kFloat : at::kChar);
  return values.masked_fill(~known, entry.regression ? NAN : -1);
}

TEST(LossesOfValues, WhatIsUnknownIsAsIfItWereMasked) {
  for (const LossEntry& entry : all_losses()) {
    if (entry.needs_classes || !entry.uses_valid) continue;
    torch::manual_seed(33);
    const at::Tensor logits = at::randn({2, kChannels, 6, 7, 8}, at::kDouble);
    const at::Tensor known = at::randint(0, 5, {2, 1, 6, 7, 8}).ne(0), mask = at::randint(0, 5, known.sizes()).ne(0);
    const auto total = [&](const at::Tensor& target, const at::Tensor& counted) {
      return case_of(entry.name, target, counted.to(at::kByte)).total(logits).item<double>();
    };
    const double masked = total(with_unknown(blocks(), at::ones_like(known), entry), mask & known);
    EXPECT_NEAR(total(with_unknown(blocks(), known, entry), mask), masked, 1e-9) << entry.name;
  }
}

TEST(LossesOfValues, WhatIsUnknownOfOneChannelHasNoGradientThere) {
  for (const LossEntry& entry : all_losses()) {
    if (entry.needs_classes || entry.name == "dvh") continue;  // that looks at the first channel alone
    torch::manual_seed(34);
    const at::Tensor logits = at::randn({2, kChannels, 6, 7, 8}, at::kDouble).requires_grad_();
    const at::Tensor known = at::randint(0, 40, logits.sizes()).ne(0);  // erosions leave something
    const Case c = case_of(entry.name, with_unknown(blocks(), known, entry), {});
    c.total(logits).backward();
    EXPECT_TRUE(logits.grad().isfinite().all().item<bool>()) << entry.name;
    EXPECT_EQ(logits.grad().masked_select(~known).abs().max().item<double>(), 0) << entry.name;
    EXPECT_GT(logits.grad().abs().max().item<double>(), 0) << entry.name;
  }
}

TEST(LossesOfValues, MeansAreThoseOfWhatIsKnown) {
  torch::manual_seed(35);
  const at::Tensor logits = at::randn({2, kChannels, 6, 7, 8}, at::kDouble), known = at::rand_like(logits) < 0.7;
  const at::Tensor x = logits.masked_select(known), t = blocks().masked_select(known).to(at::kDouble);
  const auto value = [&](const char* name) {
    return case_of(name, with_unknown(blocks(), known, find_loss(name)), {}).total(logits).item<double>();
  };
  EXPECT_NEAR(value("bce"), at::binary_cross_entropy_with_logits(x, t).item<double>(), 1e-12);
  EXPECT_NEAR(value("mae"), (x - t).abs().mean().item<double>(), 1e-12);
  EXPECT_NEAR(value("mse"), (x - t).square().mean().item<double>(), 1e-12);
}

TEST(LossesOfValues, CoarserOutputsKnowWhatAllTheirVoxelsKnow) {
  torch::manual_seed(36);
  Case c = case_of("mse", at::randn({2, 1, 6, 6, 8}), {});
  at::Tensor& target = c.targets.extra["affinity"];
  target.masked_fill_(at::rand_like(target) < 0.1, NAN);
  c.loss.deep_supervision_weights = {0, 1};
  const at::Tensor coarse = at::randn({2, 1, 3, 3, 4}), mean = at::avg_pool3d(target, {2, 2, 2}), known = ~mean.isnan();
  const LossResult result = LossSet(c.loss, c.data, 1).compute({at::randn(target.sizes()), coarse}, c.targets, 0);
  EXPECT_NEAR(result.total.item<double>(), (coarse - mean).masked_select(known).square().mean().item<double>(), 1e-6);
}

TEST(LossesOfValues, LossesThatNeedClassesSayWhatTheyAreFor) {
  EXPECT_TRUE(find_loss("cross_entropy").needs_classes);
  for (const LossEntry& entry : all_losses()) {
    if (!entry.needs_classes) continue;
    try {
      case_of(entry.name, blocks(), {}).total(at::randn({2, kChannels, 6, 7, 8}));
      ADD_FAILURE() << entry.name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("use bce"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace vox
