// The planning rules against nnU-Net's own planner (nnunetv2 2.8.1, run on the same shapes and spacings); the first
// ones are also what its published plans of these datasets say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "config/config.h"
#include "plan/recipe.h"
#include "plan/recipe_text.h"
#include "plan/topology.h"

namespace vox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Known {
  const char* name;
  size_t cases;
  CaseShape shape;
  int64_t classes;
  Extent3 patch;
  std::vector<Extent3> strides, kernels;
  int64_t batch;
  bool low_resolution;
};

constexpr Extent3 kOne{1, 1, 1}, kTwo{2, 2, 2}, kThree{3, 3, 3}, kFlatTwo{1, 2, 2}, kFlatThree{1, 3, 3};

const std::vector<Known>& known_plans() {
  const std::vector<Extent3> six{kOne, kTwo, kTwo, kTwo, kTwo, kTwo}, threes(6, kThree);
  static const std::vector<Known> plans{
      {"hippocampus",
       260,
       {{36, 50, 35}, {1, 1, 1}},
       3,
       {40, 56, 40},
       {kOne, kTwo, kTwo, kTwo},
       std::vector<Extent3>(4, kThree),
       9,
       false},
      {"brats", 484, {{138, 170, 138}, {1, 1, 1}}, 4, {128, 128, 128}, six, threes, 2, false},
      {"liver", 131, {{482, 512, 512}, {1, 0.767578125, 0.767578125}}, 3, {128, 128, 128}, six, threes, 2, true},
      {"prostate",
       32,
       {{20, 320, 319}, {3.6, 0.625, 0.625}},
       3,
       {20, 320, 256},
       {kOne, kFlatTwo, kFlatTwo, kTwo, kTwo, kFlatTwo, kFlatTwo},
       {kFlatThree, kFlatThree, kThree, kThree, kThree, kThree, kThree},
       2,
       false},
      {"acdc",
       200,
       {{9, 256, 216}, {10, 1.5625, 1.5625}},
       4,
       {10, 256, 224},
       {kOne, kFlatTwo, kFlatTwo, kTwo, kFlatTwo, kFlatTwo},
       {kFlatThree, kFlatThree, kThree, kThree, kThree, kThree},
       7,
       false},
      {"heart",
       20,
       {{115, 320, 232}, {1.37, 1.25, 1.25}},
       2,
       {80, 192, 160},
       {kOne, kTwo, kTwo, kTwo, kTwo, kFlatTwo},
       threes,
       2,
       false},
      {"scroll", 786, {{320, 320, 320}, {1, 1, 1}}, 3, {128, 128, 128}, six, threes, 2, true},
      {"vnc",
       1,
       {{20, 704, 640}, {47.5, 4.6, 4.6}},
       2,
       {12, 384, 384},
       {kOne, kFlatTwo, kFlatTwo, kFlatTwo, kTwo, kFlatTwo, kFlatTwo},
       {kFlatThree, kFlatThree, kFlatThree, kThree, kThree, kThree, kThree},
       2,
       false},
      // The coarse axis is x here: nnU-Net turns the axes, we keep them.
      {"lung",
       63,
       {{512, 512, 252}, {0.78515625, 0.78515625, 1.24500000477}},
       2,
       {192, 160, 80},
       {kOne, kTwo, kTwo, kTwo, kTwo, {2, 2, 1}},
       threes,
       2,
       true}};
  return plans;
}

TEST(Topology, PlansAreThoseOfNnunet) {
  for (const Known& known : known_plans()) {
    const NetworkPlan plan = plan_network(std::vector<CaseShape>(known.cases, known.shape), known.classes);
    EXPECT_EQ(plan.spacing, known.shape.spacing) << known.name;
    EXPECT_EQ(plan.topology.patch, known.patch) << known.name;
    EXPECT_EQ(plan.topology.strides, known.strides) << known.name;
    EXPECT_EQ(plan.topology.kernels, known.kernels) << known.name;
    EXPECT_EQ(plan.batch, known.batch) << known.name;
    EXPECT_EQ(plan.low_resolution, known.low_resolution) << known.name;
  }
}

TEST(Topology, FeaturesDoubleUpToThreeHundredAndTwenty) {
  EXPECT_THAT(features_of(4), ElementsAre(32, 64, 128, 256));
  EXPECT_THAT(features_of(7), ElementsAre(32, 64, 128, 256, 320, 320, 320));
}

TEST(Topology, FeatureMapsAreCountedByHand) {
  const Topology two{{16, 16, 16}, {2, 2, 2}, {kOne, kTwo}, {kThree, kThree}};
  // Encoder 2 x 32 at 16^3 and 2 x 64 at 8^3; decoder 2 x 32, the way up 32, and 3 classes at 16^3.
  EXPECT_EQ(feature_map_values(two, 3), 4096.0 * (2 * 32 + 3 * 32 + 3) + 512.0 * 2 * 64);
}

TEST(Topology, ThickSlicesTakeTheTenthPercentile) {
  std::vector<CaseShape> cases;
  for (int i = 0; i < 11; ++i) cases.push_back({{10, 200, 200}, {5.0 + i, 1, 1}});
  EXPECT_EQ(target_spacing(cases), (Spacing3{6, 1, 1}));  // of 5, 6 ... 15; the median would be 10
  for (CaseShape& item : cases) item.extent.z = 100;      // no longer few: the median holds
  EXPECT_EQ(target_spacing(cases), (Spacing3{10, 1, 1}));
}

TEST(Topology, CoarserOutputsWeighHalfAndTheCoarsestNothing) {
  EXPECT_THAT(supervision_weights(4), ElementsAre(4.0 / 7, 2.0 / 7, 1.0 / 7, 0));
}

TEST(Topology, PercentileIsNumpys) {
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 50), 2.5);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 10), 1.3);
  EXPECT_DOUBLE_EQ(percentile({7}, 99.5), 7);
}

Fingerprint print_of(const std::vector<CaseShape>& shapes) {
  Fingerprint print;
  for (const CaseShape& shape : shapes) {
    CasePrint one;
    one.extent = one.nonzero = shape.extent;
    one.spacing = shape.spacing;
    one.has_spacing = true;
    one.mean = {10}, one.deviation = {2}, one.minimum = {-1024};
    print.voxels += shape.extent.voxels();
    print.cases.push_back(one);
  }
  print.labels = {{0, print.voxels - 5}, {1, 3}, {4, 2}};
  print.foreground = {{.mean = 41.5, .deviation = 20.25, .low = -120.5, .high = 300}};
  return print;
}

Layout layout_of_ct() {
  Layout layout;
  layout.data.root = "/data/set \"1\"";
  layout.data.images = {"images/{id}.nii.gz"};
  layout.data.label = "labels/{id}.nii.gz";
  layout.channel_names = {"CT"};
  return layout;
}

Options read_back(const std::string& recipe) {
  return parse_config(recipe, "/recipes").options;
}

TEST(Recipe, IsReadBackAsPlanned) {
  const Layout layout = layout_of_ct();
  const Fingerprint print = print_of({{{20, 320, 319}, {3.6, 0.625, 0.625}}, {{20, 320, 319}, {4.6, 0.625, 0.625}}});
  const std::string text = plan_recipe({layout, print, PlanStyle::kNnunet, "/recipes/a.yaml"});
  const Options options = read_back(text);
  EXPECT_EQ(options.data.root, layout.data.root);
  EXPECT_THAT(options.data.labels, ElementsAre(0, 1, 4));
  EXPECT_EQ(options.model.out_channels, 3);
  EXPECT_THAT(options.model.filters, ElementsAre(32, 64, 128, 256, 320, 320, 320));
  EXPECT_EQ(options.model.kernels.front(), kFlatThree);
  ASSERT_EQ(options.data.preprocess.size(), 3u);
  EXPECT_EQ(options.data.preprocess[0].name, "clip");
  EXPECT_EQ(options.data.preprocess[1].name, "normalize");
  EXPECT_EQ(options.data.preprocess[2].name, "resample");
  EXPECT_THAT(text, HasSubstr("min: -120.5, max: 300"));
  EXPECT_THAT(text, HasSubstr("spacing: [3.7, 0.625, 0.625]"));  // the 10th percentile of 3.6 and 4.6
  EXPECT_EQ(options.training.optimizer, "sgd");
  EXPECT_EQ(options.loss.terms.size(), 2u);
}

TEST(Recipe, EveryLineHasAReasonAndFitsTheScreen) {
  const Layout layout = layout_of_ct();
  const std::string text =
      plan_recipe({layout, print_of({{{64, 64, 64}, {1, 1, 1}}}), PlanStyle::kVoxloom, "/data/set \"1\"/x.yaml"});
  EXPECT_EQ(fs::path(read_back(text).data.root) / "x", "/recipes/x");  // the recipe's own folder
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

TEST(Recipe, VolumesTooSmallForAnyPoolingAreRefused) {
  const Layout layout = layout_of_ct();
  EXPECT_THROW(plan_recipe({layout, print_of({{{6, 7, 7}, {1, 1, 1}}}), PlanStyle::kVoxloom, "/recipes/a.yaml"}),
               Error);
  try {  // few slices, finer than they are wide: these are halved first, and are too few
    plan_recipe({layout, print_of({{{8, 316, 274}, {0.4, 1, 1}}}), PlanStyle::kVoxloom, "/recipes/a.yaml"});
    FAIL() << "no axis can be halved";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("8 x 316 x 274 voxels of 0.4 x 1 x 1 mm"));
    EXPECT_THAT(error.what(), HasSubstr("axes whose voxels are the smallest"));
  }
}

// nnU-Net's planner estimates 7,012,352 values for 32^3 voxels and the labels {background, a, b}, 7,045,120 with
// "ignore".
TEST(Recipe, LikeNnunetALabelToIgnoreCountsInTheEstimateOfMemory) {
  Layout layout = layout_of_ct();
  const Fingerprint print = print_of({{{32, 32, 32}, {1, 1, 1}}});
  const auto planned = [&] { return plan_recipe({layout, print, PlanStyle::kNnunet, "/recipes/a.yaml"}); };
  EXPECT_THAT(planned(), HasSubstr("160 would fit into 8 GB"));
  layout.data.ignore_label = 2;
  EXPECT_THAT(planned(), HasSubstr("159 would fit into 8 GB"));
}

TEST(Recipe, NothingIsValidatedWhereNothingIsHeldOut) {
  Layout layout = layout_of_ct();
  layout.data.split = "none";
  const Fingerprint print = print_of({{{32, 32, 32}, {1, 1, 1}}});
  for (const PlanStyle style : {PlanStyle::kVoxloom, PlanStyle::kNnunet}) {
    const std::string text = plan_recipe({layout, print, style, "/recipes/a.yaml"});
    EXPECT_EQ(read_back(text).validation.every, 0);
    EXPECT_THAT(text, testing::Not(HasSubstr("best checkpoint")));
  }
}

// 600 times 32 of 40 volumes that a patch covers, eight to a batch, are 2,400 steps; where eight patches cover one,
// 19,200.
TEST(Recipe, TrainsFewVolumesForFewerSteps) {
  const Layout layout = layout_of_ct();
  const auto planned = [&](size_t count, const Extent3& extent) {
    const CaseShape shape{extent, {1, 1, 1}};
    return read_back(
        plan_recipe({layout, print_of(std::vector<CaseShape>(count, shape)), PlanStyle::kVoxloom, "/recipes/a.yaml"}));
  };
  const Options small = planned(40, {40, 56, 40});
  EXPECT_EQ(small.data.folds, 5);
  EXPECT_EQ(small.data.batch_size, 8);
  EXPECT_EQ(small.data.patch_size.voxels(), 40 * 56 * 40);
  EXPECT_EQ(small.training.max_epochs, 10);
  EXPECT_EQ(small.validation.every, 1);
  EXPECT_EQ(planned(5, {40, 56, 40}).training.max_epochs, 4) << "1,000 steps at least";
  const Options large = planned(40, {256, 256, 256});
  EXPECT_EQ(large.training.max_epochs, 100);
  EXPECT_EQ(large.validation.every, 5);
}

TEST(RecipeText, QuotesWhateverANameHolds) {
  const std::string odd = "a: \"b\" # {c} \\ 'd'";
  EXPECT_EQ(read_back("data:\n  label: " + quoted(odd) + "\n").data.label, odd);
}

}  // namespace
}  // namespace vox
