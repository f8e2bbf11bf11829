#include "config/presets.h"

#include "config/test_support.h"

namespace vox {
namespace {

using ::testing::ElementsAre;

TEST(Presets, EveryChoiceLoadsAndItsResolvedFileLoadsToTheSame) {
  for (const char* preset : {"none", "flips", "nnunet", "scroll_heavy", "em", "dose"}) {
    const Options options = options_of(concat("augmentation: {preset: ", preset, "}"));
    EXPECT_EQ(options.augmentation.preset, preset);
    EXPECT_EQ(options_of(to_yaml(options)), options) << preset;
    EXPECT_EQ(options.augmentation.flip.enabled, std::string(preset) != "none") << preset;
  }
}

TEST(Presets, WhatIsWrittenHoldsOverThePreset) {
  const Options options = options_of(
      "augmentation: {preset: nnunet, rotate: {degrees: [-10, 10]}, gamma: {enabled: false}}\ndata: {sampler: uniform}",
      {"augmentation.blur.prob=0.7"});
  EXPECT_THAT(options.augmentation.rotate.degrees, ElementsAre(-10, 10));
  EXPECT_TRUE(options.augmentation.rotate.enabled);
  EXPECT_EQ(options.augmentation.rotate.prob, 0.2);
  EXPECT_FALSE(options.augmentation.gamma.enabled);
  EXPECT_EQ(options.augmentation.blur.prob, 0.7);
  EXPECT_EQ(options.data.sampler, "uniform");
  EXPECT_EQ(options_of("augmentation: {preset: nnunet}").data.sampler, "foreground");
  EXPECT_FALSE(options_of("augmentation: {preset: em, enabled: false}").augmentation.enabled);
}

TEST(Presets, TheCommandLineChoosesAnother) {
  const Options options = options_of("augmentation: {preset: em}", {"augmentation.preset=flips"});
  EXPECT_FALSE(options.augmentation.noise.enabled);
  EXPECT_TRUE(options.augmentation.flip.enabled);
}

TEST(Presets, NnunetTurnsThickSlicesInTheirPlane) {
  EXPECT_THAT(options_of("augmentation: {preset: nnunet}\ndata: {patch_size: [20, 128, 128]}").augmentation.rotate.axes,
              ElementsAre(0));
  EXPECT_THAT(options_of("augmentation: {preset: nnunet}\ndata: {patch_size: [64, 128, 128]}").augmentation.rotate.axes,
              ElementsAre(0, 1, 2));
}

TEST(Presets, AWrongNameIsAnErrorThatKnowsTheRightOne) {
  EXPECT_THAT(error_of("augmentation: {preset: nnunett}"), ::testing::HasSubstr("did you mean \"nnunet\""));
}

}  // namespace
}  // namespace vox
