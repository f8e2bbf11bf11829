#include "train/without_effect.h"

#include <gtest/gtest.h>

#include <functional>

namespace vox {
namespace {

const PlannedRun kFacts{.total_steps = 100, .validation_cases = 1, .on_cpu = true, .label_values = {0, 1}};

LossTerm term(const std::string& name, double weight, int64_t start_step) {
  LossTerm made;
  made.name = name;
  made.weight = weight;
  made.start_step = start_step;
  return made;
}

std::vector<std::string> notes(const std::function<void(Options&, PlannedRun&)>& change) {
  Options options;
  PlannedRun facts = kFacts;
  change(options, facts);
  return without_effect(options, facts);
}

void expect_one(const std::string& part, const std::function<void(Options&, PlannedRun&)>& change) {
  const std::vector<std::string> found = notes(change);
  ASSERT_EQ(found.size(), 1u) << part;
  EXPECT_NE(found[0].find(part), std::string::npos) << found[0];
}

TEST(WithoutEffect, NothingIsSaidOfSettingsThatAct) {
  EXPECT_TRUE(notes([](Options&, PlannedRun&) {}).empty());
  EXPECT_TRUE(notes([](Options& o, PlannedRun& f) {
                o.training.warmup_steps = 99;
                o.training.cooldown_steps = 100;
                o.training.early_stop = 1;
                o.training.schedule = "plateau";
                o.training.cuda_graph = "on";
                f.on_cpu = false;
                o.loss.terms = {term("dice", 0, 0), term("bce", 1, 99)};
                o.loss.deep_supervision_weights = {1, 0.5};
                o.model.deep_supervision = true;
                o.monitor.gradient_histograms = true;
                o.data.ignore_label = 2;
                f.label_values = {0, 1, 2};
              }).empty());
}

TEST(WithoutEffect, EachSettingThatDoesNothingIsNamed) {
  expect_one("never reaches training.lr", [](Options& o, PlannedRun&) { o.training.warmup_steps = 100; });
  expect_one("falls from the start", [](Options& o, PlannedRun&) { o.training.cooldown_steps = 101; });
  expect_one("a warm-up of its own", [](Options& o, PlannedRun&) {
    o.training.schedule = "one_cycle";
    o.training.warmup_steps = 1000;
  });
  expect_one("training.milestones is empty", [](Options& o, PlannedRun&) { o.training.schedule = "multistep"; });
  expect_one("training.early_stop has no effect: validation.every is 0", [](Options& o, PlannedRun&) {
    o.training.early_stop = 3;
    o.validation.every = 0;
  });
  expect_one("plateau, but there is no case", [](Options& o, PlannedRun& f) {
    o.training.schedule = "plateau";
    f.validation_cases = 0;
  });
  expect_one("term dice starts at step 100",
             [](Options& o, PlannedRun&) { o.loss.terms = {term("dice", 1, 100), term("bce", 1, 0)}; });
  expect_one("nothing is learned", [](Options& o, PlannedRun&) { o.loss.terms = {term("dice", 0, 0)}; });
  expect_one("deep_supervision_weights", [](Options& o, PlannedRun&) { o.loss.deep_supervision_weights = {1, 0.5}; });
  expect_one("data.sampler is uniform", [](Options& o, PlannedRun&) { o.data.minimum_labelled = 0.5; });
  expect_one("training.cuda_graph", [](Options& o, PlannedRun&) { o.training.cuda_graph = "on"; });
  expect_one("gradient_histograms", [](Options& o, PlannedRun&) {
    o.monitor.gradient_histograms = true;
    o.monitor.tensorboard = false;
  });
}

TEST(WithoutEffect, LabelsThatTellNothingApartAreNamed) {
  expect_one("no value but 0", [](Options&, PlannedRun& f) { f.label_values = {0}; });
  const auto one_and_ignored = [](Options& o, PlannedRun& f) {
    o.data.ignore_label = 2;
    f.label_values = {1, 2};
  };
  expect_one("no value but 1", one_and_ignored);
  expect_one("nothing counts", [](Options& o, PlannedRun& f) {
    o.data.ignore_label = 2;
    f.label_values = {2};
  });
  EXPECT_TRUE(notes([](Options& o, PlannedRun& f) {
                o.data.target = "regression";
                f.label_values = {};
              }).empty());
}

TEST(WithoutEffect, AValueOfAFewVoxelsOfOneCaseIsAskedAbout) {
  const auto with_stray = [](int64_t voxels) {
    return [voxels](Options&, PlannedRun& f) {
      f.label_values = {0, 1, 7};
      f.labels = {{"a", {{0, 90'000}, {1, 50'000}}}, {"b", {{0, 90'000}, {1, 50'000}, {7, voxels}}}, {"c", {{1, 9}}}};
    };
  };
  expect_one("the label value 7 is in 3 voxels of case b and nowhere else", with_stray(3));
  EXPECT_TRUE(notes(with_stray(300)).empty());  // a small class
  EXPECT_TRUE(notes([&](Options& o, PlannedRun& f) {
                with_stray(3)(o, f);
                o.data.labels = {0, 1, 7};  // it is meant
              }).empty());
  EXPECT_TRUE(notes([&](Options& o, PlannedRun& f) {
                with_stray(3)(o, f);
                f.labels[0].counts.push_back({7, 2});  // in two cases
              }).empty());
}

}  // namespace
}  // namespace vox
