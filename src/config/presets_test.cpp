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

TEST(Presets, NnunetIsItsList) {
  const AugmentationOptions o = options_of("augmentation: {preset: nnunet}").augmentation;
  EXPECT_EQ(o.label_interpolation, "linear");
  EXPECT_EQ(o.rotate.prob, 0.2);
  EXPECT_THAT(o.rotate.degrees, ElementsAre(-30, 30));
  EXPECT_EQ(o.scale.prob, 0.2);
  EXPECT_THAT(o.scale.range, ElementsAre(0.7, 1.4));
  EXPECT_TRUE(o.scale.of_region && !o.scale.per_axis && !o.elastic.enabled);
  EXPECT_EQ(o.noise.prob, 0.1);
  EXPECT_THAT(o.noise.sigma, ElementsAre(0, 0.1));
  EXPECT_FALSE(o.noise.per_channel);
  EXPECT_EQ(o.blur.prob, 0.2);
  EXPECT_EQ(o.blur.channel_prob, 0.5);
  EXPECT_THAT(o.blur.sigma, ElementsAre(0.5, 1));
  EXPECT_TRUE(o.blur.per_axis && o.blur.per_channel);
  for (const auto& [prob, factor] :
       {std::pair{o.brightness.prob, o.brightness.factor}, {o.contrast.prob, o.contrast.factor}}) {
    EXPECT_EQ(prob, 0.15);
    EXPECT_THAT(factor, ElementsAre(0.75, 1.25));
  }
  EXPECT_TRUE(o.brightness.balanced && o.contrast.balanced && o.contrast.preserve_range);
  EXPECT_EQ(o.low_resolution.prob, 0.25);
  EXPECT_EQ(o.low_resolution.channel_prob, 0.5);
  EXPECT_THAT(o.low_resolution.scale, ElementsAre(0.5, 1));
  EXPECT_FALSE(o.low_resolution.per_axis);
  EXPECT_EQ(o.gamma_inverted.prob, 0.1);
  EXPECT_EQ(o.gamma.prob, 0.3);
  for (const GammaOptions& gamma : {o.gamma, o.gamma_inverted}) {
    EXPECT_THAT(gamma.range, ElementsAre(0.7, 1.5));
    EXPECT_TRUE(gamma.balanced && gamma.keep_statistics && gamma.per_channel);
  }
  EXPECT_EQ(o.flip.prob, 0.5);
  EXPECT_EQ(options_of("augmentation: {preset: nnunet}").data.foreground_fraction, 0.33);
}

TEST(Presets, DoseSwapsTheParotidsAndKeepsTheMaskInSight) {
  const AugmentationOptions o = options_of("augmentation: {preset: dose}").augmentation;
  EXPECT_THAT(o.flip.axes, ElementsAre(1, 2));
  EXPECT_THAT(o.flip.swap_channels, ElementsAre(3, 4));
  EXPECT_EQ(o.flip.swap_axis, 1);
  EXPECT_THAT(o.rotate.axes, ElementsAre(2));
  EXPECT_EQ(o.rotate.step, 40);
  EXPECT_EQ(o.shift.prob, 0.8);
  EXPECT_THAT(o.shift.voxels, ElementsAre(-20, 20));
  EXPECT_EQ(o.shift.keep, "mask");
}

TEST(Presets, EmDrawsOneAffineTransform) {
  const AugmentationOptions o = options_of("augmentation: {preset: em}").augmentation;
  EXPECT_TRUE(o.scale.with_rotate && o.shear.with_rotate);
  EXPECT_EQ(o.rotate.prob, 0.3);
  EXPECT_EQ(o.blurred_section.prob, 0.3);
  EXPECT_FALSE(o.motion_blur.enabled);
  EXPECT_EQ(o.cutout.sections, 1);
}

TEST(Presets, AWrongNameIsAnErrorThatKnowsTheRightOne) {
  EXPECT_THAT(error_of("augmentation: {preset: nnunett}"), ::testing::HasSubstr("did you mean \"nnunet\""));
}

}  // namespace
}  // namespace vox
