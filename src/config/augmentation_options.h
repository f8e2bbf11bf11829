#pragma once

#include "config/augmentation_intensity_options.h"
#include "config/augmentation_spatial_options.h"

namespace vox {

// In the order of application: src/augment/transforms.list.
struct AugmentationOptions {
  bool enabled = true;
  std::string preset = "none";  // config/presets.h; the defaults of everything below
  std::string label_interpolation = "nearest";
  std::vector<int64_t> channels;  // of the image, that transforms of values act on; empty: all but masks
  FlipOptions flip;
  Rot90Options rot90;
  TransposeOptions transpose;
  RotateOptions rotate;
  ScaleOptions scale;
  ShiftOptions shift;
  ShearOptions shear;
  ElasticOptions elastic;
  MisalignmentOptions misalignment;
  NoiseOptions noise;
  BlurOptions blur;
  SharpenOptions sharpen;
  BrightnessOptions brightness;
  BrightnessAddOptions brightness_add;
  BrightnessGradientOptions brightness_gradient;
  ContrastOptions contrast;
  LowResolutionOptions low_resolution;
  GammaOptions gamma_inverted;
  GammaOptions gamma;
  InvertOptions invert;
  SliceIlluminationOptions slice_illumination;
  CutoutOptions cutout;
  CutNoiseOptions cut_noise;
  MissingSectionOptions missing_section;
  DroppedSectionOptions dropped_section;
  BlurredSectionOptions blurred_section;
  MotionBlurOptions motion_blur;

  void describe(Visitor& v) {
    v.field("enabled", enabled, {.meaning = "Augment at all; each transform is switched on below"});
    v.field("preset", preset,
            {.meaning = "Sets the defaults of all transforms; what is written beside it holds",
             .choices = {"none", "flips", "nnunet", "scroll_heavy", "em", "dose"}});
    v.field("label_interpolation", label_interpolation,
            {.meaning = "How labels are resampled: the nearest voxel, or the label of the largest linear weight",
             .choices = {"nearest", "linear"}});
    v.field(
        "channels", channels,
        {.meaning = "Image channels whose values are changed; empty is all but masks: channels of one or two values",
         .min = 0});
    v.section("flip", flip);
    v.section("rot90", rot90);
    v.section("transpose", transpose);
    v.section("rotate", rotate);
    v.section("scale", scale);
    v.section("shift", shift);
    v.section("shear", shear);
    v.section("elastic", elastic);
    v.section("misalignment", misalignment);
    v.section("noise", noise);
    v.section("blur", blur);
    v.section("sharpen", sharpen);
    v.section("brightness", brightness);
    v.section("brightness_add", brightness_add);
    v.section("brightness_gradient", brightness_gradient);
    v.section("contrast", contrast);
    v.section("low_resolution", low_resolution);
    v.section("gamma_inverted", gamma_inverted);
    v.section("gamma", gamma);
    v.section("invert", invert);
    v.section("slice_illumination", slice_illumination);
    v.section("cutout", cutout);
    v.section("cut_noise", cut_noise);
    v.section("missing_section", missing_section);
    v.section("dropped_section", dropped_section);
    v.section("blurred_section", blurred_section);
    v.section("motion_blur", motion_blur);
  }
  bool operator==(const AugmentationOptions&) const = default;
};

}  // namespace vox
