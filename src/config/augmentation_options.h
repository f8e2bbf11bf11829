#pragma once

#include "config/visitor.h"

namespace vox {

struct Switch {  // a transform that can be turned off and happens with a probability
  bool enabled = false;
  double prob = 0.5;

  void describe(Visitor& v) {
    v.field("enabled", enabled, {.meaning = "Use this transform"});
    v.field("prob", prob, {.meaning = "Share of patches it is applied to", .min = 0, .max = 1});
  }
  bool operator==(const Switch&) const = default;
};

struct FlipOptions : Switch {
  std::vector<int64_t> axes{0, 1, 2};

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field(
        "axes", axes,
        {.meaning = "Axes to flip, each by its own draw; 0 is z", .min = 0, .max = 2, .min_items = 1, .max_items = 3});
  }
  bool operator==(const FlipOptions&) const = default;
};

struct Rot90Options : Switch {
  std::vector<int64_t> axes{0};  // axes to turn about

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field(
        "axes", axes,
        {.meaning = "Axes to turn about by quarter turns; 0 is z", .min = 0, .max = 2, .min_items = 1, .max_items = 3});
  }
  bool operator==(const Rot90Options&) const = default;
};

struct RotateOptions : Switch {
  std::vector<double> degrees{-30, 30};
  std::vector<int64_t> axes{0, 1, 2};

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("degrees", degrees,
            {.meaning = "Range of the angle", .unit = "degrees", .min = -180, .max = 180, .form = Form::kRange});
    v.field("axes", axes,
            {.meaning = "Axes to turn about; 0 is z", .min = 0, .max = 2, .min_items = 1, .max_items = 3});
  }
  bool operator==(const RotateOptions&) const = default;
};

struct ScaleOptions : Switch {
  std::vector<double> range{0.7, 1.4};
  bool per_axis = false;

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("range", range, {.meaning = "Range of the factor", .min = 0.05, .max = 20, .form = Form::kRange});
    v.field("per_axis", per_axis, {.meaning = "Draw a factor for each axis instead of one for all"});
  }
  bool operator==(const ScaleOptions&) const = default;
};

struct ShiftOptions : Switch {
  std::vector<double> voxels{-8, 8};

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("voxels", voxels,
            {.meaning = "Range of the shift along each axis", .unit = "voxels", .form = Form::kRange});
  }
  bool operator==(const ShiftOptions&) const = default;
};

struct ShearOptions : Switch {
  std::vector<double> range{-0.1, 0.1};

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("range", range,
            {.meaning = "Range of the shear: voxels of shift per voxel", .min = -2, .max = 2, .form = Form::kRange});
  }
  bool operator==(const ShearOptions&) const = default;
};

struct ElasticOptions : Switch {
  int64_t grid = 32;                    // distance between control points
  std::vector<double> magnitude{0, 4};  // of their random shifts

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field(
        "grid", grid,
        {.meaning = "Distance between the control points of the deformation", .unit = "voxels", .min = 4, .max = 1024});
    v.field("magnitude", magnitude,
            {.meaning = "Range of the standard deviation of the control points' shifts",
             .unit = "voxels",
             .min = 0,
             .max = 1024,
             .form = Form::kRange});
  }
  bool operator==(const ElasticOptions&) const = default;
};

struct NoiseOptions : Switch {
  std::vector<double> sigma{0, 0.1};

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("sigma", sigma,
            {.meaning = "Range of the standard deviation of added Gaussian noise", .min = 0, .form = Form::kRange});
  }
  bool operator==(const NoiseOptions&) const = default;
};

struct BrightnessOptions : Switch {
  std::vector<double> factor{0.75, 1.25};

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("factor", factor, {.meaning = "Range of the factor on all values", .min = 0, .form = Form::kRange});
  }
  bool operator==(const BrightnessOptions&) const = default;
};

struct ContrastOptions : Switch {
  std::vector<double> factor{0.75, 1.25};

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("factor", factor,
            {.meaning = "Range of the factor on the distance to the mean", .min = 0, .form = Form::kRange});
  }
  bool operator==(const ContrastOptions&) const = default;
};

struct AugmentationOptions {
  bool enabled = true;
  FlipOptions flip;
  Rot90Options rot90;
  RotateOptions rotate;
  ScaleOptions scale;
  ShiftOptions shift;
  ShearOptions shear;
  ElasticOptions elastic;
  NoiseOptions noise;
  BrightnessOptions brightness;
  ContrastOptions contrast;

  void describe(Visitor& v) {
    v.field("enabled", enabled, {.meaning = "Augment at all; each transform is switched on below"});
    v.section("flip", flip);
    v.section("rot90", rot90);
    v.section("rotate", rotate);
    v.section("scale", scale);
    v.section("shift", shift);
    v.section("shear", shear);
    v.section("elastic", elastic);
    v.section("noise", noise);
    v.section("brightness", brightness);
    v.section("contrast", contrast);
  }
  bool operator==(const AugmentationOptions&) const = default;
};

}  // namespace vox
