// Transforms of values: they act on the gathered image, never on labels.
#pragma once

#include "config/switch_options.h"

namespace vox {

struct NoiseOptions : ChannelSwitch {
  std::vector<double> sigma{0, 0.1};

  void describe(Visitor& v) {
    ChannelSwitch::describe(v);
    v.field("sigma", sigma,
            {.meaning = "Range of the standard deviation of added Gaussian noise", .min = 0, .form = Form::kRange});
  }
  bool operator==(const NoiseOptions&) const = default;
};

struct BlurOptions : ChannelSwitch {
  std::vector<double> sigma{0.5, 1.0};
  bool per_axis = false;

  void describe(Visitor& v) {
    ChannelSwitch::describe(v);
    v.field("sigma", sigma,
            {.meaning = "Range of the standard deviation of the Gaussian",
             .unit = "voxels",
             .min = 0,
             .max = 64,
             .form = Form::kRange});
    v.field("per_axis", per_axis, {.meaning = "Draw a width for each axis instead of one for all"});
  }
  bool operator==(const BlurOptions&) const = default;
};

struct SharpenOptions : ChannelSwitch {
  std::vector<double> sigma{0.5, 1.0};
  std::vector<double> strength{0.1, 1.0};

  void describe(Visitor& v) {
    ChannelSwitch::describe(v);
    v.field("sigma", sigma,
            {.meaning = "Range of the width of the Gaussian whose difference is added",
             .unit = "voxels",
             .min = 0,
             .max = 64,
             .form = Form::kRange});
    v.field("strength", strength,
            {.meaning = "Range of the factor on that difference", .min = 0, .form = Form::kRange});
  }
  bool operator==(const SharpenOptions&) const = default;
};

struct BrightnessOptions : ChannelSwitch {
  std::vector<double> factor{0.75, 1.25};
  bool balanced = false;

  void describe(Visitor& v) {
    ChannelSwitch::describe(v);
    v.field("factor", factor, {.meaning = "Range of the factor on all values", .min = 0, .form = Form::kRange});
    v.field("balanced", balanced, {.meaning = "First choose below or above 1 with equal chance, then draw there"});
  }
  bool operator==(const BrightnessOptions&) const = default;
};

struct BrightnessAddOptions : ChannelSwitch {
  std::vector<double> shift{-0.1, 0.1};

  void describe(Visitor& v) {
    ChannelSwitch::describe(v);
    v.field("shift", shift, {.meaning = "Range of the number added to all values", .form = Form::kRange});
  }
  bool operator==(const BrightnessAddOptions&) const = default;
};

struct BrightnessGradientOptions : ChannelSwitch {
  std::vector<double> strength{0.1, 0.5};

  void describe(Visitor& v) {
    ChannelSwitch::describe(v);
    v.field("strength", strength,
            {.meaning =
                 "Range of what is added at one end of the patch, and subtracted at the other, in a random direction",
             .min = 0,
             .form = Form::kRange});
  }
  bool operator==(const BrightnessGradientOptions&) const = default;
};

struct ContrastOptions : ChannelSwitch {
  std::vector<double> factor{0.75, 1.25};
  bool balanced = false;
  bool preserve_range = true;

  void describe(Visitor& v) {
    ChannelSwitch::describe(v);
    v.field("factor", factor,
            {.meaning = "Range of the factor on the distance to the mean", .min = 0, .form = Form::kRange});
    v.field("balanced", balanced, {.meaning = "First choose below or above 1 with equal chance, then draw there"});
    v.field("preserve_range", preserve_range, {.meaning = "Clamp to the range that the patch had"});
  }
  bool operator==(const ContrastOptions&) const = default;
};

struct LowResolutionOptions : ChannelSwitch {
  std::vector<double> scale{0.5, 1.0};
  std::vector<int64_t> axes{0, 1, 2};
  bool per_axis = false;

  void describe(Visitor& v) {
    ChannelSwitch::describe(v);
    v.field(
        "scale", scale,
        {.meaning = "Range of the resolution, as a share of the patch's", .min = 0.01, .max = 1, .form = Form::kRange});
    v.field("axes", axes,
            {.meaning = "Axes that lose resolution; 0 is z", .min = 0, .max = 2, .min_items = 1, .max_items = 3});
    v.field("per_axis", per_axis, {.meaning = "Draw a share for each axis instead of one for all"});
  }
  bool operator==(const LowResolutionOptions&) const = default;
};

struct GammaOptions : ChannelSwitch {
  std::vector<double> range{0.7, 1.5};
  bool balanced = false;
  bool keep_statistics = false;

  void describe(Visitor& v) {
    ChannelSwitch::describe(v);
    v.field(
        "range", range,
        {.meaning = "Range of the exponent on values stretched to 0..1", .min = 0.01, .max = 8, .form = Form::kRange});
    v.field("balanced", balanced, {.meaning = "First choose below or above 1 with equal chance, then draw there"});
    v.field("keep_statistics", keep_statistics, {.meaning = "Restore mean and standard deviation afterwards"});
  }
  bool operator==(const GammaOptions&) const = default;
};

struct InvertOptions : ChannelSwitch {
  void describe(Visitor& v) { ChannelSwitch::describe(v); }
  bool operator==(const InvertOptions&) const = default;
};

struct SliceIlluminationOptions : Switch {
  std::vector<int64_t> axes{0};
  std::vector<double> factor{0.9, 1.1};
  std::vector<double> shift{0, 0};

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("axes", axes,
            {.meaning = "Axes of which one is drawn; slices lie across it",
             .min = 0,
             .max = 2,
             .min_items = 1,
             .max_items = 3});
    v.field("factor", factor, {.meaning = "Range of the factor of each slice", .min = 0, .form = Form::kRange});
    v.field("shift", shift, {.meaning = "Range of the number added to each slice", .form = Form::kRange});
  }
  bool operator==(const SliceIlluminationOptions&) const = default;
};

struct CutoutOptions : Switch {
  int64_t boxes = 1;
  std::vector<double> size{0.1, 0.25};
  std::string fill = "mean";
  int64_t sections = 0;

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("boxes", boxes, {.meaning = "Most boxes in a patch; drawn from 1 to this", .min = 1, .max = 1024});
    v.field("size", size,
            {.meaning = "Range of a box's sides, as a share of the patch's", .min = 0, .max = 1, .form = Form::kRange});
    v.field("fill", fill, {.meaning = "What the box holds instead", .choices = {"mean", "zero"}});
    v.field("sections", sections,
            {.meaning = "Sections that a box is thick; 0 is as `size` says", .min = 0, .max = 4096});
  }
  bool operator==(const CutoutOptions&) const = default;
};

struct CutNoiseOptions : Switch {
  int64_t boxes = 1;
  std::vector<double> size{0.1, 0.4};
  std::vector<double> sigma{0.05, 0.15};

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("boxes", boxes, {.meaning = "Most boxes in a patch; drawn from 1 to this", .min = 1, .max = 1024});
    v.field("size", size,
            {.meaning = "Range of a box's sides, as a share of the patch's", .min = 0, .max = 1, .form = Form::kRange});
    v.field("sigma", sigma,
            {.meaning = "Range of the standard deviation of the noise added there", .min = 0, .form = Form::kRange});
  }
  bool operator==(const CutNoiseOptions&) const = default;
};

struct MissingSectionOptions : SectionSwitch {
  double full_prob = 0.5;
  std::vector<double> part{0.25, 0.75};
  std::vector<double> fill{0, 1};

  void describe(Visitor& v) {
    SectionSwitch::describe(v);
    v.field("full_prob", full_prob,
            {.meaning = "Share of missing sections that are missing whole", .min = 0, .max = 1});
    v.field(
        "part", part,
        {.meaning = "Range of the share of rows that are missing otherwise", .min = 0, .max = 1, .form = Form::kRange});
    v.field("fill", fill, {.meaning = "Range of the value that stands there", .form = Form::kRange});
  }
  bool operator==(const MissingSectionOptions&) const = default;
};

struct DroppedSectionOptions : SectionSwitch {
  std::string with = "neighbour";

  void describe(Visitor& v) {
    SectionSwitch::describe(v);
    v.field("with", with,
            {.meaning = "What stands in its place: a copy of a neighbour, or the mean of both",
             .choices = {"neighbour", "mean"}});
  }
  bool operator==(const DroppedSectionOptions&) const = default;
};

struct BlurredSectionOptions : SectionSwitch {
  std::vector<double> sigma{1, 3};

  void describe(Visitor& v) {
    SectionSwitch::describe(v);
    v.field("sigma", sigma,
            {.meaning = "Range of the standard deviation of the Gaussian, in the section",
             .unit = "voxels",
             .min = 0,
             .max = 64,
             .form = Form::kRange});
  }
  bool operator==(const BlurredSectionOptions&) const = default;
};

struct MotionBlurOptions : SectionSwitch {
  std::vector<double> length{3, 9};

  void describe(Visitor& v) {
    SectionSwitch::describe(v);
    v.field("length", length,
            {.meaning = "Range of the length of the movement, in a random direction of the section",
             .unit = "voxels",
             .min = 1,
             .max = 256,
             .form = Form::kRange});
  }
  bool operator==(const MotionBlurOptions&) const = default;
};

}  // namespace vox
