// What a set of terms shares: outputs of several sizes, steps, heads, channels, targets, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "base/error.h"
#include "losses/loss_test_terms.h"

namespace vox {
namespace {

TEST(LossSet, DeepSupervisionHalvesFromHeadToHeadAndResizesNearest) {
  torch::manual_seed(19);
  Case c;
  c.loss.terms = {term("bce")};
  c.targets.label = at::randint(0, 2, {1, 1, 8, 8, 8}, at::kByte);
  const std::vector<at::Tensor> heads{at::randn({1, 1, 8, 8, 8}), at::randn({1, 1, 4, 4, 8}),
                                      at::randn({1, 1, 2, 2, 4})};
  double expected = 0;
  for (size_t i = 0; i < 3; ++i) {
    const at::Tensor target = at::upsample_nearest3d(c.targets.label.to(at::kFloat), heads[i].sizes().slice(2));
    expected += at::binary_cross_entropy_with_logits(heads[i], target).item<double>() * (4.0 / 7) / (1 << i);
  }
  EXPECT_NEAR(LossSet(c.loss, c.data, 1).compute(heads, c.targets, 0).total.item<double>(), expected, 1e-6);
  c.loss.deep_supervision_weights = {1, 0, 0};
  const double first = at::binary_cross_entropy_with_logits(heads[0], c.targets.label.to(at::kFloat)).item<double>();
  EXPECT_NEAR(LossSet(c.loss, c.data, 1).compute(heads, c.targets, 0).total.item<double>(), first, 1e-6);
  c.loss.deep_supervision_weights = {1, 0};
  EXPECT_THROW(LossSet(c.loss, c.data, 1).compute(heads, c.targets, 0), Error);
}

TEST(LossSet, ARareTermIsAbsentBetweenItsStepsAndKeepsItsExpectation) {
  torch::manual_seed(20);
  Case c;
  c.loss.terms = {term("bce"), term("dice")};
  c.loss.terms[1].weight = 0.5;
  c.loss.terms[1].every = 4;
  c.loss.terms[1].start_step = 3;
  c.targets.label = at::randint(0, 2, {1, 1, 4, 4, 4}, at::kByte);
  const at::Tensor logits = at::randn({1, 1, 4, 4, 4});
  const LossSet losses(c.loss, c.data, 1);
  double sum = 0;
  for (int64_t step = 3; step < 11; ++step) {
    const LossResult result = losses.compute({logits}, c.targets, step);
    EXPECT_EQ(result.terms[1].second.has_value(), step == 3 || step == 7) << step;
    sum += result.total.item<double>();
  }
  EXPECT_FALSE(losses.compute({logits}, c.targets, 2).terms[1].second.has_value());
  const LossResult both = losses.compute({logits}, c.targets, 3);
  const double bce = both.terms[0].second->item<double>(), dice = both.terms[1].second->item<double>();
  EXPECT_NEAR(sum / 8, bce + 0.5 * dice, 1e-5);
}

TEST(LossSet, TermsSeeTheirHeadTheirChannelsAndTheirTarget) {
  torch::manual_seed(21);
  Case c;
  const std::vector<HeadOptions> heads{{"affinity", 3}, {"distance", 1}};
  c.loss.terms = {term("bce"), term("smooth_l1"), term("bce")};
  c.loss.terms[0].head = "affinity";
  c.loss.terms[0].target = "affinity";
  c.loss.terms[1].head = "distance";
  c.loss.terms[1].target = "signed_distance";
  c.loss.terms[2].channels = {2};
  c.targets.label = at::randint(0, 2, {1, 1, 4, 4, 4}, at::kByte);
  c.targets.extra["affinity"] = at::randint(0, 2, {1, 3, 4, 4, 4}, at::kByte);
  c.targets.extra["signed_distance"] = at::randn({1, 1, 4, 4, 4});
  const at::Tensor logits = at::randn({1, 4, 4, 4, 4});
  const LossResult result = LossSet(c.loss, c.data, 4, heads).compute({logits}, c.targets, 0);
  const auto value = [&](size_t i) { return result.terms[i].second->item<double>(); };
  const auto bce = [](const at::Tensor& x, const at::Tensor& t) {
    return at::binary_cross_entropy_with_logits(x, t.to(at::kFloat)).item<double>();
  };
  EXPECT_NEAR(value(0), bce(logits.narrow(1, 0, 3), c.targets.extra["affinity"]), 1e-6);
  EXPECT_NEAR(value(1), at::smooth_l1_loss(logits.narrow(1, 3, 1), c.targets.extra["signed_distance"]).item<double>(),
              1e-6);
  EXPECT_NEAR(value(2), bce(logits.narrow(1, 2, 1), c.targets.label), 1e-6);
  c.loss.terms[0].channels = {2, 0};  // of the head's own, in this order
  c.targets.extra["affinity"] = at::randint(0, 2, {1, 2, 4, 4, 4}, at::kByte);
  const LossResult two = LossSet(c.loss, c.data, 4, heads).compute({logits}, c.targets, 0);
  EXPECT_NEAR(two.terms[0].second->item<double>(),
              bce(at::stack({logits.select(1, 2), logits.select(1, 0)}, 1), c.targets.extra["affinity"]), 1e-6);
  // Coarser outputs: classes by nearest neighbour, values by the mean of the voxels that fall together.
  const at::Tensor coarse = at::randn({1, 4, 2, 2, 2});
  c.loss.deep_supervision_weights = {0, 1};
  const LossResult lower = LossSet(c.loss, c.data, 4, heads).compute({logits, coarse}, c.targets, 0);
  const at::Tensor mean = at::avg_pool3d(c.targets.extra["signed_distance"], {2, 2, 2});
  EXPECT_NEAR(lower.terms[1].second->item<double>(), at::smooth_l1_loss(coarse.narrow(1, 3, 1), mean).item<double>(),
              1e-6);
  c.loss.terms[0].channels = {1};
  EXPECT_THROW(LossSet(c.loss, c.data, 4, heads).compute({logits}, c.targets, 0),
               Error);  // two volumes for one channel
  c.loss.terms[0].head = "affinities";
  EXPECT_THROW(LossSet(c.loss, c.data, 4, heads), Error);
  c.loss.terms[0].head = "distance";
  c.loss.terms[0].channels = {1};
  EXPECT_THROW(LossSet(c.loss, c.data, 4, heads), Error);
}

TEST(LossSet, ScoresSeeWhatATermAboutTheLabelSees) {
  Case c;
  const std::vector<HeadOptions> heads{{"border", 1}, {"body", 2}};
  c.loss.terms = {term("bce"), term("dice")};
  c.loss.terms[0].head = "border";
  c.loss.terms[0].target = "boundary";
  c.loss.terms[1].head = "body";
  const at::Tensor logits = at::randn({1, 3, 2, 2, 2});
  EXPECT_TRUE(c.loss.looks_at_label());
  LossSet::Compared seen = LossSet(c.loss, c.data, 3, heads).compared_with_label(logits);
  EXPECT_TRUE(at::equal(seen.logits, logits.narrow(1, 1, 2)));
  EXPECT_FALSE(seen.foreground);
  c.loss.terms[1].target = "everything";
  c.loss.targets = {{"everything", "foreground", {}}};
  EXPECT_TRUE(c.loss.looks_at_label());
  seen = LossSet(c.loss, c.data, 3, heads).compared_with_label(logits);
  EXPECT_TRUE(at::equal(seen.logits, logits.narrow(1, 1, 2)));
  EXPECT_TRUE(seen.foreground);
  c.loss.terms[1].target = "affinity";
  EXPECT_FALSE(c.loss.looks_at_label());
  EXPECT_FALSE(LossSet(c.loss, c.data, 3, heads).compared_with_label(logits).logits.defined());
  EXPECT_TRUE(LossSet(c.loss, c.data, 3, heads).label_channels().channels.empty());
}

TEST(LossSet, ClassesAreTheLabelBeforeForegroundAndFewerChannels) {
  Case c;
  const std::vector<HeadOptions> heads{{"body", 1}, {"organs", 3}, {"distance", 1}};
  c.loss.terms = {term("bce"), term("dice"), term("dice"), term("mse")};
  c.loss.terms[0].head = "body";
  c.loss.terms[0].target = "foreground";
  c.loss.terms[1].head = c.loss.terms[2].head = "organs";
  c.loss.terms[1].channels = {2};
  c.loss.terms[3].head = "distance";
  c.loss.terms[3].target = "signed_distance";
  EXPECT_THAT(LossSet(c.loss, c.data, 5, heads).label_channels().channels, testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(LossSet(c.loss, c.data, 5, heads).value_channels(), testing::ElementsAre(4));
  c.loss.terms[2].target = "boundary";
  EXPECT_THAT(LossSet(c.loss, c.data, 5, heads).label_channels().channels, testing::ElementsAre(3));
  c.loss.terms[1].target = "affinity";
  EXPECT_TRUE(LossSet(c.loss, c.data, 5, heads).label_channels().foreground);
  c.loss.terms = {term("skeleton_recall")};  // makes its target of the label by itself
  EXPECT_TRUE(c.loss.looks_at_label());
  EXPECT_THAT(LossSet(c.loss, c.data, 1).label_channels().channels, testing::ElementsAre(0));
}

TEST(LossSet, TheLabelsChannelsAreASoftmaxWhereATermTakesOne) {
  const auto takes_one = [](const std::vector<LossTerm>& terms, int64_t channels) {
    Case c;
    c.loss.terms = terms;
    const Tree classes = list_tree({scalar("0"), scalar("1"), scalar("2")});
    c.loss.targets = {{"classes", "one_hot", term("", {{"classes", classes}}).params}};
    return LossSet(c.loss, c.data, channels).label_channels().softmax;
  };
  LossTerm one_hot = term("dice");
  one_hot.target = "classes";
  EXPECT_TRUE(takes_one({term("dice")}, 3));
  EXPECT_TRUE(takes_one({term("bce"), term("dice")}, 3));
  EXPECT_TRUE(takes_one({one_hot, term("dice")}, 3));
  EXPECT_FALSE(takes_one({one_hot}, 3));
  EXPECT_FALSE(takes_one({term("bce")}, 3));
  EXPECT_FALSE(takes_one({term("dice")}, 1));
}

TEST(LossSet, ValuesThatATermTakesTheTangentOfAreTold) {
  Case c;
  c.loss.terms = {term("dice"), term("smooth_l1", {{"tanh", scalar("true")}}), term("smooth_l1")};
  for (size_t i = 0; i < 3; ++i) c.loss.terms[i].channels = {static_cast<int64_t>(i)};
  c.loss.terms[1].target = c.loss.terms[2].target = "signed_distance";
  const LossSet loss(c.loss, c.data, 3);
  EXPECT_THAT(loss.value_channels(), testing::ElementsAre(1, 2));
  EXPECT_THAT(loss.tanh_channels(), testing::ElementsAre(1));
  c.data.target = "regression";  // a validation judges what the loss compared
  c.loss.terms = {term("smooth_l1", {{"tanh", scalar("true")}})};
  const at::Tensor outputs = at::randn({1, 1, 2, 2, 2});
  EXPECT_TRUE(at::equal(LossSet(c.loss, c.data, 1).compared_with_label(outputs).logits, outputs.tanh()));
}

TEST(LossSet, EveryTermIsDueAtOneOfTheFullestSteps) {
  Case c;
  c.loss.terms = {term("bce"), term("dice"), term("focal"), term("tversky")};
  EXPECT_EQ(LossSet(c.loss, c.data, 1).fullest_steps(1'000'000), std::vector<int64_t>{0});
  c.loss.terms[1].start_step = 500;
  c.loss.terms[2].every = 7;
  EXPECT_EQ(LossSet(c.loss, c.data, 1).fullest_steps(1'000'000), std::vector<int64_t>{504});
  c.loss.terms[2].every = 2;
  c.loss.terms[3].every = 2;
  c.loss.terms[3].start_step = 1;  // never together with the third
  EXPECT_EQ(LossSet(c.loss, c.data, 1).fullest_steps(1'000'000), (std::vector<int64_t>{500, 501}));
}

TEST(LossSet, TheFullestStepsOfAShortRunAreItsOwn) {
  Case c;
  c.loss.terms = {term("bce"), term("dice"), term("focal"), term("tversky")};
  c.loss.terms[1].start_step = 500;
  const auto fullest = [&](int64_t end) { return LossSet(c.loss, c.data, 1).fullest_steps(end); };
  EXPECT_EQ(fullest(500), std::vector<int64_t>{0});  // dice never starts
  EXPECT_EQ(fullest(501), std::vector<int64_t>{500});
  c.loss.terms[2].every = 10;
  c.loss.terms[3].every = 7;
  EXPECT_EQ(fullest(600), std::vector<int64_t>{560});
  EXPECT_EQ(fullest(505), (std::vector<int64_t>{0, 500}));  // dice meets one of both
  c.loss.terms = {term("dice")};
  c.loss.terms[0].start_step = 500;
  EXPECT_EQ(fullest(10), std::vector<int64_t>{0});
}

bool throws(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error&) {
    return true;
  }
  return false;
}

TEST(LossSet, ClassesBeyondTheChannelsAreRefusedByTheirValues) {
  Case c;
  c.loss.terms = {term("dice")};
  const auto refuses = [&](int64_t channels, const std::vector<int64_t>& values) {
    return throws([&] { LossSet(c.loss, c.data, channels).require_channels(values); });
  };
  EXPECT_TRUE(refuses(2, {0, 1, 2}));
  EXPECT_FALSE(refuses(3, {0, 1, 2}));
  EXPECT_FALSE(refuses(1, {0, 1, 2}));  // all that is not 0 is one thing
  c.data.ignore_label = 2;
  EXPECT_FALSE(refuses(2, {0, 1, 2}));
  c.data.labels = {0, 2, 10, 205};
  EXPECT_FALSE(refuses(3, {0, 10, 205}));
  EXPECT_TRUE(refuses(2, {}));  // the recipe says it already
  c.data.labels = {};
  c.data.ignore_label = -1;
  c.loss.terms[0].target = "boundary";
  EXPECT_FALSE(refuses(2, {0, 1, 2}));
}

TEST(LossSet, OneChannelNeedsABackgroundBesideSeveralValues) {
  Case c;
  c.loss.terms = {term("dice")};
  const auto refuses = [&](int64_t channels, const std::vector<int64_t>& values) {
    return throws([&] { LossSet(c.loss, c.data, channels).require_background(values); });
  };
  EXPECT_TRUE(refuses(1, {1, 2}));
  EXPECT_FALSE(refuses(1, {0, 1, 2}));
  EXPECT_FALSE(refuses(1, {1}));
  EXPECT_FALSE(refuses(2, {1, 2}));
  c.data.ignore_label = 2;
  EXPECT_FALSE(refuses(1, {1, 2}));
  c.data.labels = {1, 3};
  EXPECT_TRUE(refuses(1, {0, 1}));  // the recipe says it already
  c.data.labels = {};
  c.loss.terms[0].target = "boundary";
  EXPECT_FALSE(refuses(1, {1, 3}));
}

TEST(LossSet, ChannelsAgainstAKindAreThoseOfAllItsTerms) {
  Case c;
  c.loss.targets = {{"near", "affinity", {}}, {"far", "affinity", {}}};
  c.loss.terms = {term("bce"), term("dice"), term("bce")};
  for (LossTerm& one : c.loss.terms) one.target = "far";
  c.loss.terms[2].target = "near";
  c.loss.terms[0].channels = c.loss.terms[1].channels = {3, 4, 5};
  c.loss.terms[2].channels = {0, 1, 2};
  const LossSet loss(c.loss, c.data, 6);
  EXPECT_THAT(loss.channels_against("affinity"), testing::ElementsAre(3, 4, 5, 0, 1, 2));
  EXPECT_THAT(loss.channels_against("boundary"), testing::IsEmpty());
}

TEST(LossSet, ClassesOfBackgroundAloneAreRefused) {
  Case c;
  TargetOptions target{"classes", "one_hot", {}};
  target.params.kind = Tree::Kind::kMap;
  target.params.members = {{"classes", list_tree({scalar_tree("0")})}};
  c.loss.targets = {target};
  c.loss.terms = {term("bce")};
  c.loss.terms[0].target = "classes";
  EXPECT_TRUE(throws([&] { LossSet(c.loss, c.data, 1); }));
}

TEST(LossSet, CoarserOutputsOfARegressionSeeMeans) {
  torch::manual_seed(22);
  Case c;
  c.data.target = "regression";
  c.loss.terms = {term("mae")};
  c.loss.deep_supervision_weights = {0, 1};
  c.targets.label = at::randn({2, 1, 4, 6, 4});
  const at::Tensor coarse = at::randn({2, 1, 2, 3, 2});
  const LossResult result = LossSet(c.loss, c.data, 1).compute({at::randn({2, 1, 4, 6, 4}), coarse}, c.targets, 0);
  const at::Tensor mean = at::avg_pool3d(c.targets.label, {2, 2, 2});
  EXPECT_NEAR(result.total.item<double>(), (coarse - mean).abs().mean().item<double>(), 1e-6);
}

TEST(LossSet, RefusesWhatCannotWork) {
  Case c;
  c.loss.terms = {term("dicee")};
  EXPECT_THROW(LossSet(c.loss, c.data, 1), Error);
  c.loss.terms = {term("mae")};
  EXPECT_THROW(LossSet(c.loss, c.data, 1), Error);
  c.loss.terms = {term("cross_entropy")};
  EXPECT_THROW(LossSet(c.loss, c.data, 1), Error);
  c.loss.terms = {};
  EXPECT_EQ(LossSet(c.loss, c.data, 1).term_names(), (std::vector<std::string>{"dice", "bce"}));
  EXPECT_EQ(LossSet(c.loss, c.data, 2).term_names(), (std::vector<std::string>{"dice", "cross_entropy"}));
}

}  // namespace
}  // namespace vox
