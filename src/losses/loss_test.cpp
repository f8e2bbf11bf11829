// Truth: closed forms written out in loops, torch's own functions, and finite differences in float64.
#include "losses/loss.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "losses/loss_test_terms.h"
#include "ops/soft_thinning.h"

namespace vox {
namespace {

constexpr int64_t kIgnored = 7;

struct EntryCase {  // a loss with a number of channels that suits it
  const LossEntry* entry;
  int64_t channels;
};

std::vector<EntryCase> all_cases() {
  std::vector<EntryCase> cases;
  for (const LossEntry& entry : all_losses()) {
    if (!entry.needs_classes) cases.push_back({&entry, 1});
    if (!entry.regression && entry.name != "bce") cases.push_back({&entry, 3});
  }
  return cases;
}

std::ostream& operator<<(std::ostream& out, const EntryCase& one) {
  return out << one.entry->name << " of " << one.channels;
}

// Classes with ignored voxels, or values with a mask for regression.
Case case_for(const EntryCase& one) {
  const LossEntry& entry = *one.entry;
  Case result;
  result.loss.terms = {term(entry.name)};
  result.channels = one.channels;
  result.targets.label = at::randint(0, std::max<int64_t>(2, result.channels), {2, 1, 3, 4, 5}, at::kByte);
  if (entry.regression) {
    result.data.target = "regression";
    result.targets.label = at::randn({2, 1, 3, 4, 5});
    result.targets.mask = at::randint(0, 2, {2, 1, 3, 4, 5}, at::kByte);
  } else {
    result.data.ignore_label = kIgnored;
    result.targets.label.index_put_({at::rand({2, 1, 3, 4, 5}) < 0.3}, kIgnored);
  }
  if (entry.name == "erosion_consistency") {  // erosions leave nothing of scattered voxels
    result.loss.terms = {term(entry.name, {{"iterations", scalar("1")}})};
    result.targets.label.fill_(1);
    result.targets.label.narrow(4, 0, 1).fill_(0);
    result.targets.label.narrow(4, 4, 1).fill_(kIgnored);
  }
  if (!entry.default_target.empty())  // part of the foreground, as a skeleton is
    result.targets.extra[entry.default_target] =
        result.targets.label * (result.targets.label != kIgnored) * at::randint(0, 2, {2, 1, 3, 4, 5}, at::kByte);
  return result;
}

at::Tensor logits_for(const Case& c) {
  return at::randn({2, c.channels, 3, 4, 5}, at::kDouble).set_requires_grad(true);
}

at::Tensor right_logits(const Case& c, double size) {
  const at::Tensor label = c.targets.label.to(at::kDouble);
  if (c.data.target == "regression") return label + (size < 0 ? 1 : 0);
  if (c.channels == 1) return (label * 2 - 1) * size;
  const at::Tensor channel = at::arange(c.channels, at::kDouble).view({1, -1, 1, 1, 1});
  return (label == channel).to(at::kDouble) * (2 * size) - size;
}

TEST(Losses, EveryGradientIsThatOfFiniteDifferences) {
  for (const EntryCase& one : all_cases()) {
    torch::manual_seed(11);
    const Case c = case_for(one);
    const at::Tensor logits = logits_for(c);
    const at::Tensor grad = torch::autograd::grad({c.total(logits)}, {logits})[0];
    constexpr double kStep = 1e-6;
    for (const int64_t i : {0, 17, 33, 59, 77, 101, 119}) {
      const at::Tensor up = logits.detach().clone(), down = logits.detach().clone();
      up.view(-1)[i] += kStep;
      down.view(-1)[i] -= kStep;
      const double difference = (c.total(up) - c.total(down)).item<double>() / (2 * kStep);
      EXPECT_NEAR(grad.reshape(-1)[i].item<double>(), difference, 1e-7) << one << " at " << i;
    }
  }
}

TEST(Losses, EveryLossIsSmallestWhenThePredictionIsTheLabel) {
  for (const EntryCase& one : all_cases()) {
    torch::manual_seed(12);
    const Case c = case_for(one);
    const double right = c.total(right_logits(c, 10)).item<double>();
    EXPECT_LT(right, 1e-3) << one;
    EXPECT_LT(right, c.total(logits_for(c)).item<double>()) << one;
    EXPECT_LT(right, c.total(right_logits(c, -10)).item<double>()) << one;
  }
}

TEST(Losses, VoxelsThatDoNotCountChangeNeitherValueNorGradient) {
  for (const EntryCase& one : all_cases()) {
    if (!one.entry->uses_valid) continue;
    torch::manual_seed(13);
    const Case c = case_for(one);
    const at::Tensor out = c.data.target == "regression" ? c.targets.mask == 0 : c.targets.label == kIgnored;
    const at::Tensor logits = logits_for(c);
    const at::Tensor changed = at::where(out, logits + 5 * at::randn_like(logits), logits).detach();
    changed.set_requires_grad(true);
    const at::Tensor a = c.total(logits), b = c.total(changed);
    EXPECT_DOUBLE_EQ(a.item<double>(), b.item<double>()) << one;
    const at::Tensor grad_a = torch::autograd::grad({a}, {logits})[0],
                     grad_b = torch::autograd::grad({b}, {changed})[0];
    EXPECT_TRUE(at::equal(grad_a, grad_b)) << one;
    EXPECT_EQ((grad_a * out).abs().max().item<double>(), 0) << one;
  }
}

TEST(Losses, EveryLossIsFiniteAtTheEdges) {
  for (const EntryCase& one : all_cases()) {
    for (const int64_t value : {int64_t{0}, int64_t{1}, kIgnored}) {
      for (const double logit : {0.0, 1e4, -1e4}) {
        torch::manual_seed(14);
        Case c = case_for(one);
        c.targets.label.fill_(value);
        if (c.targets.mask.defined()) c.targets.mask.fill_(value != kIgnored);
        for (auto& [name, target] : c.targets.extra) target.fill_(value == kIgnored ? 0 : value);
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
          const at::Tensor logits = at::full({2, c.channels, 3, 4, 5}, logit, type).set_requires_grad(true);
          const at::Tensor total = c.total(logits);
          EXPECT_TRUE(std::isfinite(total.item<double>())) << one << " " << value << " " << logit << " " << type;
          const at::Tensor grad = torch::autograd::grad({total}, {logits})[0];
          EXPECT_TRUE(at::isfinite(grad).all().item<bool>()) << one << " " << value << " " << logit << " " << type;
        }
      }
    }
  }
}

TEST(Losses, AreMeansOverSamplesUnlessTheySayTheyAreOfTheBatch) {
  int64_t seen = 0;
  for (const EntryCase& one : all_cases()) {
    torch::manual_seed(15);
    Case c = case_for(one);
    c.data.ignore_label = -1;
    c.targets.mask = at::Tensor();
    if (!one.entry->regression) c.targets.label.masked_fill_(c.targets.label == kIgnored, 1);
    if (one.entry->name == "masked_mae" || LossSet(c.loss, c.data, c.channels).batch_wise()) continue;
    const at::Tensor logits = logits_for(c).detach();
    double mean = 0;
    for (const int64_t n : {0, 1}) {
      Case part = c;
      part.targets.label = c.targets.label.narrow(0, n, 1);
      for (auto& [name, target] : part.targets.extra) target = target.narrow(0, n, 1);
      mean += part.total(logits.narrow(0, n, 1)).item<double>() / 2;
    }
    EXPECT_NEAR(c.total(logits).item<double>(), mean, 1e-9) << one;
    ++seen;
  }
  EXPECT_GT(seen, 15);
}

double brute_force_dice(const at::Tensor& p, const at::Tensor& t, bool batch) {
  const int64_t samples = p.size(0), groups = batch ? 1 : samples;
  double sum = 0;
  for (int64_t c = 0; c < p.size(1); ++c) {
    for (int64_t g = 0; g < groups; ++g) {
      double both = 0, either = 0;
      for (int64_t n = batch ? 0 : g; n < (batch ? samples : g + 1); ++n) {
        const at::Tensor pn = p[n][c].reshape(-1), tn = t[n][c].reshape(-1);
        for (int64_t i = 0; i < pn.numel(); ++i) {
          both += pn[i].item<double>() * tn[i].item<double>();
          either += pn[i].item<double>() + tn[i].item<double>();
        }
      }
      sum += 1 - (2 * both + 1e-5) / (either + 1e-5);
    }
  }
  return sum / static_cast<double>(groups * p.size(1));
}

TEST(Dice, IsTheFormulaPerSampleAndOverTheBatchWithAndWithoutBackground) {
  torch::manual_seed(15);
  const at::Tensor logits = at::randn({2, 3, 2, 3, 4}, at::kDouble);
  const at::Tensor label = at::randint(0, 3, {2, 1, 2, 3, 4}, at::kByte);
  const at::Tensor p = logits.softmax(1);
  const at::Tensor t = (label.to(at::kLong) == at::arange(3).view({1, 3, 1, 1, 1})).to(at::kDouble);
  for (const bool batch : {false, true}) {
    for (const bool background : {false, true}) {
      Case c;
      c.channels = 3;
      c.targets.label = label;
      c.loss.terms = {term("dice", {{"batch", scalar(batch ? "true" : "false")},
                                    {"background", scalar(background ? "true" : "false")}})};
      const int64_t first = background ? 0 : 1;
      const double expected = brute_force_dice(p.narrow(1, first, 3 - first), t.narrow(1, first, 3 - first), batch);
      EXPECT_NEAR(c.total(logits).item<double>(), expected, 1e-9) << batch << background;
      EXPECT_EQ(LossSet(c.loss, c.data, 3).batch_wise(), batch);
    }
  }
}

// A voxel that is certain has an uncertainty of 0, at which the power of a gamma below 1 is infinitely steep.
TEST(Focal, CertainVoxelsHaveFiniteGradients) {
  for (const int64_t channels : {1, 3})
    for (const char* gamma : {"0", "0.01", "0.5", "2"}) {
      Case c;
      c.channels = channels;
      c.targets.label = at::ones({1, 1, 1, 1, 4}, at::kByte);
      c.loss.terms = {term("focal", {{"gamma", scalar(gamma)}})};
      at::Tensor logits = at::zeros({1, channels, 1, 1, 4});
      logits.select(1, channels == 1 ? 0 : 1).copy_(at::tensor({0.F, 20.F, 100.F, 1000.F}).view({1, 1, 1, 4}));
      logits.requires_grad_();
      c.total(logits).backward();
      EXPECT_TRUE(logits.grad().isfinite().all().item<bool>()) << channels << " " << gamma << logits.grad();
      EXPECT_GT(logits.grad().abs().max().item<double>(), 1e-3);
    }
}

TEST(LossSet, WhatMasksHideMakesMeansOfTheBatch) {
  Case c;
  c.loss.terms = {term("bce")};
  const LossSet loss(c.loss, c.data, 1);
  EXPECT_FALSE(loss.batch_wise());
  EXPECT_TRUE(loss.batch_wise(/*masked=*/true));
}

TEST(CrossEntropy, IsTorchsWithIgnoredVoxelsAndClassWeights) {
  torch::manual_seed(16);
  const at::Tensor logits = at::randn({2, 3, 2, 3, 4}, at::kDouble);
  Case c;
  c.channels = 3;
  c.data.ignore_label = kIgnored;
  c.targets.label = at::randint(0, 3, {2, 1, 2, 3, 4}, at::kByte);
  c.targets.label.index_put_({at::rand({2, 1, 2, 3, 4}) < 0.3}, kIgnored);
  Tree weights;
  weights.kind = Tree::Kind::kList;
  weights.items = {scalar("0.5"), scalar("2"), scalar("1.5")};
  for (const bool weighted : {false, true}) {
    c.loss.terms = {weighted ? term("cross_entropy", {{"class_weights", weights}}) : term("cross_entropy")};
    const at::Tensor by_class = at::tensor({0.5, 2.0, 1.5}, at::kDouble);
    const at::Tensor expected =
        at::cross_entropy_loss(logits, c.targets.label.squeeze(1).to(at::kLong),
                               weighted ? std::optional(by_class) : std::nullopt, at::Reduction::Mean, kIgnored);
    EXPECT_NEAR(c.total(logits).item<double>(), expected.item<double>(), 1e-12) << weighted;
  }
}

TEST(Bce, IsTorchsWithAPositiveWeight) {
  torch::manual_seed(17);
  const at::Tensor logits = at::randn({2, 1, 2, 3, 4}, at::kDouble);
  Case c;
  c.targets.label = at::randint(0, 2, {2, 1, 2, 3, 4}, at::kByte) * 255;  // any value above 0 is foreground
  const at::Tensor target = (c.targets.label > 0).to(at::kDouble);
  c.loss.terms = {term("bce", {{"pos_weight", scalar("3")}})};
  const at::Tensor weight = at::tensor({3.0}, at::kDouble);
  EXPECT_NEAR(c.total(logits).item<double>(),
              at::binary_cross_entropy_with_logits(logits, target, {}, weight).item<double>(), 1e-12);
}

TEST(Losses, LabelValuesThatAreNoCountAreMapped) {
  torch::manual_seed(18);
  const at::Tensor logits = at::randn({1, 3, 2, 3, 4}, at::kDouble);
  Case plain, mapped;
  plain.channels = mapped.channels = 3;
  plain.loss.terms = mapped.loss.terms = {term("cross_entropy")};
  plain.targets.label = at::randint(0, 3, {1, 1, 2, 3, 4}, at::kShort);
  mapped.targets.label = at::where(plain.targets.label == 2, 205, plain.targets.label * 10).to(at::kShort);
  mapped.data.labels = {0, 10, 205};
  EXPECT_DOUBLE_EQ(plain.total(logits).item<double>(), mapped.total(logits).item<double>());
  plain.targets.label.fill_(3);
  EXPECT_THROW(plain.total(logits), Error);
}

TEST(Losses, EveryOptionOfALossSaysWhatItMeans) {
  for (const LossEntry& entry : all_losses())
    for (const OptionRow& row : entry.options()) EXPECT_FALSE(row.meaning.empty()) << entry.name << "." << row.key;
}

// The public baseline's form rewards foreground far from the label: there all-foreground scores best.
TEST(SurfaceDistance, AllForegroundIsWorseThanThePerfectPrediction) {
  Case c;
  c.loss.terms = {term("surface_distance")};
  c.targets.label = at::zeros({1, 1, 12, 12, 12}, at::kByte);
  c.targets.label.narrow(2, 5, 2).fill_(1);
  const double right = c.total(right_logits(c, 20)).item<double>();
  const double everything = c.total(at::full({1, 1, 12, 12, 12}, 20.0)).item<double>();
  const double nothing = c.total(at::full({1, 1, 12, 12, 12}, -20.0)).item<double>();
  EXPECT_LT(right, 1e-6);
  // Eight of twelve slices lie at distance 2 or more and count 1, two at distance 1 count a half; inside, both count a
  // half.
  EXPECT_NEAR(everything, (8 + 2 * 0.5) / 12, 1e-6);
  EXPECT_NEAR(nothing, 2 * 0.5 / 12, 1e-6);
}

TEST(Topology, AHoleAndASecondPieceCostTheSquaresOfTheirPersistence) {
  Case c;
  c.loss.terms = {term("topology")};
  c.loss.terms[0].every = 1;
  c.targets.label = at::zeros({1, 1, 7, 7, 7}, at::kByte);
  c.targets.label.narrow(2, 1, 5).narrow(3, 1, 5).narrow(4, 1, 5).fill_(1);
  at::Tensor p = c.targets.label.to(at::kDouble) * 0.8 + 0.1;  // 0.9 inside, 0.1 outside
  p[0][0][3][3][3] = 0.4;                                      // a cavity from 0.9 to 0.4
  p[0][0][0][0][6] = 0.3;                                      // a second piece, from 0.3 to 0.1
  const double expected = (1 - 0.9) * (1 - 0.9) + (0.9 - 0.4) * (0.9 - 0.4) + (0.3 - 0.1) * (0.3 - 0.1);
  EXPECT_NEAR(c.total(at::logit(p)).item<double>(), expected, 1e-6);
}

TEST(Topology, MatchingDrawsAFeatureToTheOneOfTheLabelAtTheSamePlace) {
  Case c;
  c.loss.terms = {term("topology", {{"form", scalar("betti_matching")}, {"dimensions", scalar("0")}})};
  c.loss.terms[0].every = 1;
  c.targets.label = at::zeros({1, 1, 5, 5, 12}, at::kByte);
  c.targets.label.narrow(4, 1, 3).fill_(1);  // one piece
  at::Tensor p = at::full({1, 1, 5, 5, 12}, 0.1, at::kDouble);
  p.narrow(4, 1, 3).fill_(0.6);  // where the label has it
  p.narrow(4, 8, 2).fill_(0.9);  // and a stronger one where it has none
  // The stronger piece never dies and is matched with the label's only piece, which never dies either; the other dies
  // at 0.1. Counting would see the same; what differs is which voxels are drawn.
  const double expected = 2 * (0.9 - 1) * (0.9 - 1) + (0.6 - 0.1) * (0.6 - 0.1);
  EXPECT_NEAR(c.total(at::logit(p)).item<double>(), expected, 1e-6);
  p.narrow(4, 8, 2).fill_(0.3);
  EXPECT_NEAR(c.total(at::logit(p)).item<double>(), 2 * 0.4 * 0.4 + 0.2 * 0.2, 1e-6);
}

// Sorted lists of each structure that is there, by std::sort.
double brute_force_dvh(const at::Tensor& predicted, const Targets& targets, double tails) {
  const at::Tensor &image = targets.image, &wanted = targets.label;
  double sum = 0;
  int64_t compared = 0;
  for (int64_t n = 0; n < image.size(0); ++n) {
    for (int64_t channel = 1; channel < image.size(1); ++channel) {
      std::vector<double> ours, theirs;
      for (int64_t i = 0; i < predicted[n].numel(); ++i) {
        if (image[n][channel].flatten()[i].item<double>() == 0) continue;
        if (targets.mask.defined() && targets.mask[n].flatten()[i].item<int>() == 0) continue;
        ours.push_back(predicted[n].flatten()[i].item<double>());
        theirs.push_back(wanted[n].flatten()[i].item<double>());
      }
      if (ours.empty()) continue;
      std::sort(ours.begin(), ours.end());
      std::sort(theirs.begin(), theirs.end());
      const auto mean = [&](size_t first, size_t last) {
        double apart = 0;
        for (size_t i = first; i < last; ++i) apart += std::abs(ours[i] - theirs[i]);
        return apart / static_cast<double>(last - first);
      };
      const size_t all = ours.size(), few = std::max<size_t>(1, all / 20);
      sum += mean(0, all) + tails * (mean(0, few) + mean(all - few, all));
      ++compared;
    }
  }
  return sum / static_cast<double>(compared);
}

TEST(Dvh, ComparesSortedDosesOfStructuresAndTheirEnds) {
  torch::manual_seed(19);
  const at::Tensor predicted = at::rand({2, 1, 4, 5, 6}, at::kDouble) * 70;
  Tree structures;
  structures.kind = Tree::Kind::kList;
  structures.items = {scalar("1"), scalar("2"), scalar("3")};
  for (int round = 0; round < 4; ++round) {
    const std::string tails = round % 2 == 0 ? "0" : "0.5";
    Case c;
    c.data.target = "regression";
    c.targets.label = at::rand({2, 1, 4, 5, 6}) * 70;
    if (round >= 2) c.targets.mask = (at::rand({2, 1, 4, 5, 6}) < 0.7).to(at::kByte);
    c.targets.image = (at::rand({2, 4, 4, 5, 6}) < 0.6).to(at::kFloat);
    c.targets.image[1][2].zero_();               // a structure that was not contoured
    c.targets.image[0][3].zero_()[0][0][0] = 1;  // one of one voxel
    c.loss.terms = {term("dvh", {{"structures", structures}, {"tails", scalar(tails)}})};
    const double expected = brute_force_dvh(predicted, c.targets, std::stod(tails));
    EXPECT_NEAR(c.total(predicted).item<double>(), expected, 1e-5) << round;
    c.targets.image.zero_();
    EXPECT_EQ(c.total(predicted).item<double>(), 0) << round;
  }
}

TEST(ClDice, OfThinningIsThatOfALineWhereTheMasksAgree) {
  Case c;
  c.loss.terms = {term("cldice", {{"skeleton", scalar("menten")}, {"noise", scalar("0")}})};
  c.targets.label = at::zeros({1, 1, 7, 7, 24}, at::kByte);
  c.targets.label.narrow(2, 2, 3).narrow(3, 2, 3).narrow(4, 2, 20).fill_(1);  // a bar
  const double line = ops::soft_thinning(c.targets.label.to(at::kFloat), {.iterations = 3}).sum().item<double>();
  ASSERT_NEAR(line, 20, 6);
  const double recall = (0.8 * line + 1) / (line + 1), expected = 1 - 2 * recall / (1 + recall);  // precision 1
  EXPECT_NEAR(c.total(at::logit(c.targets.label.to(at::kDouble) * 0.6 + 0.2)).item<double>(), expected, 1e-6);
}

}  // namespace
}  // namespace vox
