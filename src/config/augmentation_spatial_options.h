// Transforms that move voxels; all of them compose into the one map of the gather.
#pragma once

#include "config/switch_options.h"

namespace vox {

struct FlipOptions : Switch {
  std::vector<int64_t> axes{0, 1, 2};
  std::vector<int64_t> swap_channels;  // pairs, one after the other
  int64_t swap_axis = 1;

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field(
        "axes", axes,
        {.meaning = "Axes to flip, each by its own draw; 0 is z", .min = 0, .max = 2, .min_items = 1, .max_items = 3});
    v.field("swap_channels", swap_channels,
            {.meaning = "Pairs of image channels that change places with a flip along swap_axis: left and right organs",
             .min = 0});
    v.field("swap_axis", swap_axis, {.meaning = "Axis whose flip swaps channels", .min = 0, .max = 2});
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
  double step = 0;
  std::vector<int64_t> axes{0, 1, 2};
  std::string unit = "mm";

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("degrees", degrees,
            {.meaning = "Range of the angle", .unit = "degrees", .min = -180, .max = 180, .form = Form::kRange});
    v.field("axes", axes,
            {.meaning = "Axes to turn about; 0 is z", .min = 0, .max = 2, .min_items = 1, .max_items = 3});
    v.field("step", step,
            {.meaning = "Only multiples of this angle; 0 is any angle", .unit = "degrees", .min = 0, .max = 180});
    v.field("unit", unit,
            {.meaning = "Turn in mm, so that a sphere stays one where voxels are no cubes, or in voxels",
             .choices = {"mm", "voxels"}});
  }
  bool operator==(const RotateOptions&) const = default;
};

struct ScaleOptions : Switch {
  std::vector<double> range{0.7, 1.4};
  bool per_axis = false;
  std::vector<int64_t> axes{0, 1, 2};
  bool of_region = false;
  bool with_rotate = false;

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("range", range, {.meaning = "Range of the factor", .min = 0.05, .max = 20, .form = Form::kRange});
    v.field("per_axis", per_axis, {.meaning = "Draw a factor for each axis instead of one for all"});
    v.field("axes", axes, {.meaning = "Axes to scale; 0 is z", .min = 0, .max = 2, .min_items = 1, .max_items = 3});
    v.field("of_region", of_region,
            {.meaning = "The factor is of the region that is read: above 1 objects become smaller"});
    v.field("with_rotate", with_rotate, {.meaning = "Happens exactly where rotate does, instead of by prob"});
  }
  bool operator==(const ScaleOptions&) const = default;
};

struct ShiftOptions : Switch {
  std::vector<double> voxels{-8, 8};
  bool whole = false;
  std::string keep = "none";

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("voxels", voxels,
            {.meaning = "Range of the shift along each axis", .unit = "voxels", .form = Form::kRange});
    v.field("whole", whole, {.meaning = "Whole voxels only: nothing is interpolated"});
    v.field("keep", keep,
            {.meaning = "Shift no further than what the mask (or, where there is none, the label) marks stays in sight",
             .choices = {"none", "mask"}});
  }
  bool operator==(const ShiftOptions&) const = default;
};

struct ShearOptions : Switch {
  std::vector<double> range{-0.1, 0.1};
  bool with_rotate = false;

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("range", range,
            {.meaning = "Range of the shear: voxels of shift per voxel", .min = -2, .max = 2, .form = Form::kRange});
    v.field("with_rotate", with_rotate, {.meaning = "Happens exactly where rotate does, instead of by prob"});
  }
  bool operator==(const ShearOptions&) const = default;
};

struct TransposeOptions : Switch {
  std::vector<int64_t> axes{0, 1, 2};

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("axes", axes,
            {.meaning = "Axes that change places; 0 is z", .min = 0, .max = 2, .min_items = 2, .max_items = 3});
  }
  bool operator==(const TransposeOptions&) const = default;
};

struct ElasticOptions : Switch {
  double grid = 32;                     // distance between control points
  int64_t control_points = 0;           // along each axis, instead of grid
  std::vector<double> magnitude{0, 4};  // of their random shifts
  std::string distribution = "normal";
  std::string unit = "voxels";

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("grid", grid,
            {.meaning = "Distance between the control points of the deformation, in `unit`", .min = 0.5, .max = 4096});
    v.field("control_points", control_points,
            {.meaning = "Control points along each axis, the three beyond the patch included; 0 is as `grid` says",
             .min = 0,
             .max = 256});
    v.field("magnitude", magnitude,
            {.meaning = "Range that the deviation (normal) or the bound (uniform) of control points' shifts is drawn "
                        "from, in `unit`",
             .min = 0,
             .max = 4096,
             .form = Form::kRange});
    v.field("distribution", distribution,
            {.meaning = "Distribution of the control points' shifts", .choices = {"normal", "uniform"}});
    v.field("unit", unit, {.meaning = "Unit of grid and magnitude", .choices = {"voxels", "mm"}});
  }
  bool operator==(const ElasticOptions&) const = default;
};

struct MisalignmentOptions : Switch {
  int64_t voxels = 16;
  double slip_prob = 0.5;

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("voxels", voxels,
            {.meaning = "Largest shift in y and in x of a section of the patch, image and label alike",
             .unit = "voxels",
             .min = 1,
             .max = 4096});
    v.field("slip_prob", slip_prob,
            {.meaning = "Share of misalignments that move one section alone; the others move all that follow",
             .min = 0,
             .max = 1});
  }
  bool operator==(const MisalignmentOptions&) const = default;
};

}  // namespace vox
