#include "augment/augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "augment/test_options.h"

namespace vox {
namespace {

const Extent3 kPatch{8, 12, 16};
const Spacing3 kThickSlices{.z_mm = 5, .y_mm = 0.5, .x_mm = 0.7};

std::string parameter(const Drawn& drawn, const std::string& name) {
  for (const auto& [key, value] : drawn.parameters)
    if (key == name) return value;
  return "";
}

struct Point {
  double at[3];
};
Point apply(const SpatialMap& map, const Point& point) {
  Point out;
  for (int row = 0; row < 3; ++row) {
    out.at[row] = map.shift[row];
    for (int k = 0; k < 3; ++k) out.at[row] += map.linear[row][k] * point.at[k];
  }
  return out;
}

bool is_identity(const SpatialMap& map) {
  for (int row = 0; row < 3; ++row)
    for (int column = 0; column < 3; ++column)
      if (map.linear[row][column] != (row == column) || map.shift[row] != 0) return false;
  return true;
}

TEST(Augment, EveryTransformActsWhenOnAndIsSilentWhenOff) {
  std::set<std::string> names;
  std::set<uint32_t> streams;
  for (const TransformEntry& entry : all_transforms()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_FALSE(entry.help.empty()) << entry.name;
    EXPECT_TRUE(entry.enabled(all_on())) << entry.name;
    EXPECT_FALSE(entry.enabled(AugmentationOptions{})) << entry.name;
    Drawn drawn;
    entry.draw(all_on(), {kPatch, kThickSlices, 2}, Random(1, 2, 3), drawn);
    EXPECT_FALSE(parameter(drawn, entry.name).empty()) << entry.name;
    const bool moves = !is_identity(drawn.map) || drawn.deformation;
    EXPECT_NE(moves, !drawn.intensity.empty()) << entry.name;
    EXPECT_EQ(drawn.steps.size(), drawn.intensity.size()) << entry.name;
    for (const StepOfChannel& step : drawn.steps) EXPECT_NE(step == nullptr, !entry.on_host_only) << entry.name;
    EXPECT_TRUE(streams.insert(entry.stream).second) << entry.name << ": another transform has this stream";
  }
  AugmentationOptions off = all_on();
  off.enabled = false;
  const Drawn nothing = draw_transforms(off, kPatch, kThickSlices, 1, 2);
  EXPECT_TRUE(is_identity(nothing.map) && nothing.intensity.empty() && nothing.parameters.empty());
}

TEST(Augment, AProbabilityOfZeroNeverActsAndAHalfActsHalfTheTime) {
  AugmentationOptions options = all_on();
  options.rotate.prob = 0;
  options.scale.prob = 0.5;
  int scaled = 0;
  for (int64_t sample = 0; sample < 2000; ++sample) {
    const Drawn drawn = draw_transforms(options, kPatch, kThickSlices, 4, sample);
    EXPECT_EQ(parameter(drawn, "rotate"), "");
    scaled += !parameter(drawn, "scale").empty();
  }
  EXPECT_NEAR(scaled, 1000, 5 * std::sqrt(500.0));
}

TEST(Augment, DrawsDependOnSeedAndSampleAndNotOnOtherTransforms) {
  AugmentationOptions fewer = all_on();
  fewer.flip.enabled = fewer.noise.enabled = fewer.scale.enabled = false;
  for (int64_t sample : {0, 1, 77}) {
    const Drawn all = draw_transforms(all_on(), kPatch, kThickSlices, 9, sample);
    const Drawn again = draw_transforms(all_on(), kPatch, kThickSlices, 9, sample);
    EXPECT_EQ(all.parameters, again.parameters);
    EXPECT_NE(all.parameters, draw_transforms(all_on(), kPatch, kThickSlices, 10, sample).parameters);
    EXPECT_NE(all.parameters, draw_transforms(all_on(), kPatch, kThickSlices, 9, sample + 1).parameters);
    const Drawn some = draw_transforms(fewer, kPatch, kThickSlices, 9, sample);
    for (const char* name : {"rotate", "shift", "shear", "contrast"})
      EXPECT_EQ(parameter(all, name), parameter(some, name)) << name;
  }
}

TEST(Augment, ComposingEqualsApplyingOneAfterTheOther) {
  const SpatialMap a = draw_transforms(all_on(), kPatch, kThickSlices, 1, 1).map;
  const SpatialMap b = draw_transforms(all_on(), kPatch, kThickSlices, 1, 2).map;
  const Point point{{3.5, -2, 7}}, both = apply(compose(a, b), point), stepwise = apply(b, apply(a, point));
  for (int axis = 0; axis < 3; ++axis) EXPECT_NEAR(both.at[axis], stepwise.at[axis], 1e-12);
}

TEST(Augment, RotationKeepsDistancesInMillimetres) {
  AugmentationOptions options;
  options.rotate.enabled = true;
  options.rotate.prob = 1;
  const Drawn drawn = draw_transforms(options, kPatch, kThickSlices, 5, 6);
  const auto length = [](const Point& p) {
    return std::hypot(p.at[0] * kThickSlices.z_mm, p.at[1] * kThickSlices.y_mm, p.at[2] * kThickSlices.x_mm);
  };
  for (const Point& point : {Point{{1, 0, 0}}, Point{{0, 3, 0}}, Point{{2, -3, 4}}}) {
    const Point turned = apply(drawn.map, point);
    EXPECT_NEAR(length(turned), length(point), 1e-12);
    EXPECT_GT(std::abs(turned.at[1] - point.at[1]), 1e-3);
  }
}

TEST(Augment, EnlargingReadsASmallerRegion) {
  AugmentationOptions options;
  options.scale.enabled = true;
  options.scale.prob = 1;
  options.scale.range = {2, 2};
  const Drawn drawn = draw_transforms(options, kPatch, kThickSlices, 5, 6);
  const GatherMap map = to_gather_map(drawn.map, {100, 200, 300}, {9, 9, 9});
  EXPECT_EQ(source_box(map, {9, 9, 9}, Interpolation::kLinear), (Box3{{102, 202, 302}, {107, 207, 307}}));
}

TEST(Augment, TheCentreOfThePatchStaysWhereItWas) {
  AugmentationOptions options = all_on();
  options.shift.enabled = false;
  const Extent3 begin{1000, -20, 3000}, extent{9, 13, 17};  // odd: the centre is a voxel
  const GatherMap map = to_gather_map(draw_transforms(options, extent, kThickSlices, 5, 6).map, begin, extent);
  for (int axis = 0; axis < 3; ++axis) {
    double at = static_cast<double>(map.origin[axis]) + static_cast<double>(map.offset[axis]);
    for (int k = 0; k < 3; ++k) at += static_cast<double>(map.matrix[axis][k]) * static_cast<double>(extent[k] / 2);
    EXPECT_NEAR(at, static_cast<double>(begin[axis] + extent[axis] / 2), 1e-4);
  }
}

AugmentationOptions turns_and_flips() {
  AugmentationOptions options;
  options.flip.enabled = options.rot90.enabled = true;
  options.rot90.prob = 1;
  options.rot90.axes = {0, 1, 2};
  return options;
}

TEST(Augment, QuarterTurnsAndFlipsCopyVoxelsOnPatchesOfAnyParity) {
  for (const Extent3& extent : {Extent3{8, 9, 10}, Extent3{7, 8, 8}, Extent3{5, 5, 5}, Extent3{1, 64, 63}})
    for (int64_t sample = 0; sample < 50; ++sample) {
      const SpatialMap drawn = draw_transforms(turns_and_flips(), extent, kThickSlices, 3, sample).map;
      const GatherMap map = to_gather_map(drawn, {20, 30, 40}, extent);
      for (int row = 0; row < 3; ++row) {
        EXPECT_EQ(map.offset[row], 0.0f);
        float sum = 0;
        for (const float value : map.matrix[row]) {
          EXPECT_TRUE(value == 0 || std::abs(value) == 1);
          sum += std::abs(value);
        }
        EXPECT_EQ(sum, 1.0f);
      }
      SpatialMap fourfold = compose(compose(drawn, drawn), compose(drawn, drawn));
      fourfold = compose(fourfold, compose(fourfold, fourfold));  // 12: every turn's order (1, 2, 3, 4) divides it
      EXPECT_TRUE(is_identity(fourfold));
    }
}

std::vector<float> gather_patch(const Volume& volume, const SpatialMap& map) {
  const Extent3 extent = volume.info.extent;
  std::vector<float> out(static_cast<size_t>(extent.voxels()));
  gather_cpu({.data = out.data(), .extent = extent}, view_of(volume), to_gather_map(map, {0, 0, 0}, extent), {});
  return out;
}

TEST(Augment, OneGatherThroughComposedMapsEqualsTwoGathers) {
  const Extent3 cube{10, 10, 10};
  Volume volume = allocate_volume({.dtype = DType::kFloat32, .extent = cube});
  for (int64_t i = 0; i < cube.voxels(); ++i) volume.data.as<float>()[i] = static_cast<float>(i);
  for (int64_t sample = 0; sample < 20; ++sample) {
    const SpatialMap a = draw_transforms(turns_and_flips(), cube, kThickSlices, 3, sample).map;
    const SpatialMap b = draw_transforms(turns_and_flips(), cube, kThickSlices, 4, sample).map;
    const std::vector<float> once = gather_patch(volume, compose(b, a)), by_a = gather_patch(volume, a);
    Volume between = allocate_volume(volume.info);
    std::memcpy(between.data.data(), by_a.data(), by_a.size() * sizeof(float));
    EXPECT_EQ(once, gather_patch(between, b));
  }
}

TEST(Augment, WrongOptionsAreErrorsThatNameThem) {
  AugmentationOptions options = all_on();
  options.flip.axes = {3};
  EXPECT_THROW(draw_transforms(options, kPatch, kThickSlices, 1, 1), Error);
  options = all_on();
  options.rotate.degrees = {30};
  try {
    draw_transforms(options, kPatch, kThickSlices, 1, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("augmentation.rotate.degrees"), std::string::npos);
  }
}

}  // namespace
}  // namespace vox
