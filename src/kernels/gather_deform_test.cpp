#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "base/random.h"
#include "kernels/deformation_rows.h"
#include "kernels/gather.h"
#include "kernels/gather_point.h"

namespace vox {
namespace {

constexpr DType kStoredTypes[] = {DType::kUInt8, DType::kInt16, DType::kUInt32, DType::kFloat32, DType::kFloat64};
constexpr Padding kPaddings[] = {Padding::kConstant, Padding::kEdge, Padding::kReflect};

ControlGrid random_grid(const Extent3& output, float spacing, double magnitude, Random& random) {
  ControlGrid grid;
  for (int axis = 0; axis < 3; ++axis) {
    grid.spacing[axis] = spacing * static_cast<float>(1 + 0.3 * axis);
    grid.points[axis] = covering_points(output[axis], grid.spacing[axis]);
  }
  for (auto& shift : grid.shift)
    for (int64_t i = 0; i < grid.points.voxels(); ++i)
      shift.push_back(static_cast<float>(random.uniform(-magnitude, magnitude)));
  return grid;
}

GatherMap random_map(const Extent3& volume, const Extent3& output, Random& random) {
  GatherMap map;
  for (int axis = 0; axis < 3; ++axis) {
    double corner = static_cast<double>(volume[axis]) / 2;
    for (int out = 0; out < 3; ++out) {
      map.matrix[axis][out] = static_cast<float>((axis == out ? 0.9 : 0.0) + random.uniform(-0.2, 0.2));
      corner -= map.matrix[axis][out] * static_cast<double>(output[out]) / 2;
    }
    map.origin[axis] = static_cast<int64_t>(std::floor(corner));
    map.offset[axis] = static_cast<float>(corner - std::floor(corner));
  }
  auto deformation = std::make_shared<Deformation>();
  deformation->grid = random_grid(output, static_cast<float>(random.uniform(2, 9)), 4, random);
  for (int64_t z = 0; z < output.z; ++z) {
    deformation->section_y.push_back(static_cast<float>(random.below(5) - 2));
    deformation->section_x.push_back(z == 1 ? 3.0f : 0.0f);
  }
  map.deformation = deformation;
  return map;
}

// The basis function of the uniform cubic B-spline, centred on its control point: the textbook's two pieces.
double basis(double distance) {
  const double d = std::abs(distance);
  if (d >= 2) return 0;
  return d >= 1 ? (2 - d) * (2 - d) * (2 - d) / 6 : (4 - 6 * d * d + 3 * d * d * d) / 6;
}

double displacement(const ControlGrid& grid, size_t axis, const double (&o)[3]) {
  double sum = 0;
  int64_t i = 0;
  for (int64_t z = 0; z < grid.points.z; ++z)
    for (int64_t y = 0; y < grid.points.y; ++y)
      for (int64_t x = 0; x < grid.points.x; ++x, ++i) {
        const double at[3] = {static_cast<double>(z - 1), static_cast<double>(y - 1), static_cast<double>(x - 1)};
        double weight = 1;
        for (int k = 0; k < 3; ++k) weight *= basis(o[k] / static_cast<double>(grid.spacing[k]) - at[k]);
        sum += weight * static_cast<double>(grid.shift[axis][static_cast<size_t>(i)]);
      }
  return sum;
}

// A source position in double: affine, sections and the spline as one formula.
void position(const GatherMap& map, const Extent3& voxel, double (&p)[3]) {
  const Deformation& d = *map.deformation;
  const size_t z = static_cast<size_t>(voxel.z);
  const double o[3] = {static_cast<double>(voxel.z), static_cast<double>(voxel.y), static_cast<double>(voxel.x)};
  const double moved[3] = {o[0], o[1] + (d.section_y.empty() ? 0 : d.section_y[z]),
                           o[2] + (d.section_x.empty() ? 0 : d.section_x[z])};
  for (int axis = 0; axis < 3; ++axis) {
    p[axis] = static_cast<double>(map.origin[axis]) + static_cast<double>(map.offset[axis]);
    for (int k = 0; k < 3; ++k) p[axis] += static_cast<double>(map.matrix[axis][k]) * moved[k];
    if (d.grid.points.voxels() > 0) p[axis] += displacement(d.grid, static_cast<size_t>(axis), o);
  }
}

template <class Visit>
void for_each_voxel(const Extent3& extent, const Visit& visit) {
  size_t i = 0;
  for (int64_t z = 0; z < extent.z; ++z)
    for (int64_t y = 0; y < extent.y; ++y)
      for (int64_t x = 0; x < extent.x; ++x, ++i) visit(Extent3{z, y, x}, i);
}

std::vector<float> gathered(const Volume& volume, const GatherMap& map, const Extent3& extent,
                            const GatherOptions& options) {
  std::vector<float> out(static_cast<size_t>(extent.voxels()), std::numeric_limits<float>::quiet_NaN());
  gather_cpu({.data = out.data(), .extent = extent}, view_of(volume), map, options);
  return out;
}

// A volume whose values are its own coordinates along `axis`: what comes out is where the gather looked.
TEST(Deform, PositionsEqualADoubleReference) {
  Random random(3, 0, 0);
  const Extent3 volume{60, 60, 60}, extent{11, 13, 27};
  const GatherMap map = random_map(volume, extent, random);
  for (int axis = 0; axis < 3; ++axis) {
    Volume ramp = allocate_volume({.dtype = DType::kFloat32, .extent = volume});
    for_each_voxel(volume,
                   [&](const Extent3& at, size_t i) { ramp.data.as<float>()[i] = static_cast<float>(at[axis]); });
    const std::vector<float> out = gathered(ramp, map, extent, {});
    for_each_voxel(extent, [&](const Extent3& at, size_t i) {
      double p[3];
      position(map, at, p);
      ASSERT_NEAR(out[i], p[axis], 2e-5) << "positions below 64 carry roundings of 2^-19, a few of them";
    });
  }
}

TEST(Deform, FieldIsTheSplineOfItsControlPoints) {
  Random random(5, 0, 0);
  const Extent3 extent{9, 31, 45};
  Deformation deformation{.grid = random_grid(extent, 6.5f, 10, random), .section_y = {}, .section_x = {}};
  DeformationRows rows(deformation, extent);
  std::vector<float> row(static_cast<size_t>(extent.x) + 8);
  for (int axis = 0; axis < 3; ++axis)
    for (int64_t z = 0; z < extent.z; ++z)
      for (int64_t y = 0; y < extent.y; y += 5) {
        rows.row(axis, z, y, row.data());
        for (int64_t x = 0; x < extent.x; ++x) {
          const double o[3] = {static_cast<double>(z), static_cast<double>(y), static_cast<double>(x)};
          ASSERT_NEAR(row[static_cast<size_t>(x)], displacement(deformation.grid, static_cast<size_t>(axis), o), 1e-5);
        }
      }
}

template <class T>
float by_definition(const Volume& volume, const GatherMap& map, const Extent3& at, const GatherOptions& options) {
  GatherSource<T> source{};
  source.data = volume.as<T>();
  const Extent3 size = volume.info.extent;
  for (int axis = 0; axis < 3; ++axis) {
    source.origin[axis] = map.origin[axis];
    source.size[axis] = source.end[axis] = size[axis];
  }
  source.stride[0] = size.y * size.x, source.stride[1] = size.x, source.stride[2] = 1;
  source.scale = static_cast<float>(volume.info.scale);
  source.scaled = volume.info.scale != 1;
  source.padding = options.padding;
  source.pad_value = options.pad_value;
  const Deformation& d = *map.deformation;
  const ControlGrid& grid = d.grid;
  const float o[3] = {static_cast<float>(at.z), static_cast<float>(at.y), static_cast<float>(at.x)};
  SplineWeights weights[3];
  for (int axis = 0; axis < 3; ++axis) weights[axis] = spline_weights(o[axis], grid.spacing[axis], grid.points[axis]);
  float p[3];
  for (int axis = 0; axis < 3; ++axis) {
    const GatherAxis row{map.matrix[axis][0], map.matrix[axis][1], map.matrix[axis][2], map.offset[axis]};
    std::vector<float> coefficients;
    for (int64_t k = 0; k < grid.points.x; ++k)
      coefficients.push_back(row_coefficient(grid.shift[static_cast<size_t>(axis)].data(),
                                             grid.points.y * grid.points.x, grid.points.x, weights[0], weights[1], k));
    const size_t z = static_cast<size_t>(at.z);
    p[axis] = position_at(row, row_start(row, o[0], o[1] + d.section_y[z]), o[2] + d.section_x[z]) +
              spline_value(weights[2], coefficients.data());
  }
  if (options.interpolation == Interpolation::kLinear) return gather_linear(source, p[0], p[1], p[2]);
  if (options.interpolation == Interpolation::kLabel) return gather_label(source, p[0], p[1], p[2]);
  return gather_nearest(source, p[0], p[1], p[2]);
}

TEST(Deform, FastPathIsTheDefinitionBitForBit) {
  for (const DType dtype : kStoredTypes)
    for (const Padding padding : kPaddings)
      for (const Interpolation interpolation :
           {Interpolation::kLinear, Interpolation::kNearest, Interpolation::kLabel}) {
        Random random(7, static_cast<uint64_t>(padding), static_cast<uint32_t>(dtype));
        const Extent3 volume{14, 16, 40}, extent{6, 9, 1 + random.below(40)};
        Volume source = allocate_volume({.dtype = dtype, .extent = volume});
        with_type(dtype, [&](auto typed) {
          for (int64_t i = 0; i < volume.voxels(); ++i)
            source.data.as<decltype(typed)>()[i] = static_cast<decltype(typed)>(random.below(i % 3 == 0 ? 9 : 2));
        });
        if (padding == Padding::kEdge) source.info.scale = 0.5;
        const GatherMap map = random_map(volume, extent, random);
        const GatherOptions options{interpolation, padding, -3.25f};
        const std::vector<float> out = gathered(source, map, extent, options);
        with_type(dtype, [&](auto typed) {
          for_each_voxel(extent, [&](const Extent3& at, size_t i) {
            ASSERT_EQ(out[i], by_definition<decltype(typed)>(source, map, at, options)) << name_of(dtype) << at;
          });
        });
      }
}

TEST(Deform, ReadBoxIsEnoughAndNoLargerThanTheLargestDisplacement) {
  for (const Padding padding : kPaddings)
    for (uint64_t trial = 0; trial < 20; ++trial) {
      Random random(47, trial, static_cast<uint32_t>(padding));
      const Extent3 volume{30 + random.below(20), 30, 30}, extent{6, 7, 11};
      const GatherMap map = random_map(volume, extent, random);
      const GatherOptions options{trial % 2 ? Interpolation::kLinear : Interpolation::kNearest, padding, 2.0f};
      const Box3 box = read_box(map, extent, options, volume);
      Volume source = allocate_volume({.dtype = DType::kFloat32, .extent = volume}), cut = allocate_volume(source.info);
      for_each_voxel(volume, [&](const Extent3& at, size_t i) {
        source.data.as<float>()[i] = static_cast<float>(random.normal());
        const bool inside = box.contains({at, at + Extent3{1, 1, 1}});
        cut.data.as<float>()[i] = inside ? source.data.as<float>()[i] : NAN;
      });
      EXPECT_EQ(gathered(cut, map, extent, options), gathered(source, map, extent, options)) << trial;
      GatherMap stiff = map;
      stiff.deformation = nullptr;
      const Box3 most = source_box(map, extent, options.interpolation);
      const Box3 affine = source_box(stiff, extent, options.interpolation);
      for (int axis = 0; axis < 3; ++axis) {  // 4 voxels of the grid, and sections by up to 3 through the matrix
        EXPECT_GE(most.begin[axis], affine.begin[axis] - 4 - 5);
        EXPECT_LE(most.end[axis], affine.end[axis] + 4 + 5);
      }
    }
}

TEST(Deform, SectionsMoveByWholeVoxels) {
  const Extent3 extent{3, 4, 12};
  Volume source = allocate_volume({.dtype = DType::kUInt8, .extent = {3, 4, 20}});
  for (int64_t i = 0; i < 240; ++i) source.data.as<uint8_t>()[i] = static_cast<uint8_t>(i);
  auto deformation = std::make_shared<Deformation>();
  deformation->section_y = {0, 0, 0};
  deformation->section_x = {0, 5, -2};
  GatherMap map;
  map.deformation = deformation;
  const std::vector<float> out = gathered(source, map, extent, {.pad_value = -1});
  for_each_voxel(extent, [&](const Extent3& at, size_t i) {
    const int64_t x = at.x + (at.z == 1 ? 5 : at.z == 2 ? -2 : 0);
    EXPECT_EQ(out[i], x < 0 ? -1.0f : static_cast<float>((at.z * 4 + at.y) * 20 + x));
  });
}

// Weights in double, summed by label over the taps.
std::map<float, double> label_weights(const Volume& labels, const double (&p)[3], float pad) {
  std::map<float, double> weights;
  const Extent3 size = labels.info.extent;
  for (int corner = 0; corner < 8; ++corner) {
    double weight = 1;
    Extent3 at;
    bool inside = true;
    for (int axis = 0; axis < 3; ++axis) {
      const double base = std::floor(p[axis]);
      const bool upper = corner >> axis & 1;
      at[axis] = static_cast<int64_t>(base) + upper;
      weight *= upper ? p[axis] - base : 1 - (p[axis] - base);
      inside = inside && at[axis] >= 0 && at[axis] < size[axis];
    }
    weights[inside ? labels.as<uint8_t>()[(at.z * size.y + at.y) * size.x + at.x] : pad] += weight;
  }
  return weights;
}

TEST(Labels, TheLargestLinearWeightWinsAndPaddingIsALabelToo) {
  for (const int64_t count : {2, 5}) {
    Random random(9, static_cast<uint64_t>(count), 0);
    const Extent3 volume{14, 15, 18}, extent{12, 12, 25};
    Volume labels = allocate_volume({.dtype = DType::kUInt8, .extent = volume});
    for (int64_t i = 0; i < volume.voxels(); ++i)
      labels.data.as<uint8_t>()[i] = static_cast<uint8_t>(random.below(count));
    const GatherMap map = random_map(volume, extent, random);
    const std::vector<float> out = gathered(labels, map, extent, {Interpolation::kLabel, Padding::kConstant, 7});
    size_t decided = 0;
    for_each_voxel(extent, [&](const Extent3& at, size_t i) {
      double p[3];
      position(map, at, p);
      const std::map<float, double> weights = label_weights(labels, p, 7);
      double best = 0, chosen = weights.count(out[i]) ? weights.at(out[i]) : -1;
      for (const auto& [label, weight] : weights) best = std::max(best, weight);
      EXPECT_GE(chosen, best - 1e-4) << at;
      decided += chosen == best;
    });
    EXPECT_GT(decided, out.size() * 99 / 100);
  }
}

TEST(Labels, OfEqualWeightsTheLowestLabelWins) {
  Volume labels = allocate_volume({.dtype = DType::kUInt8, .extent = {1, 1, 12}});
  for (int i = 0; i < 12; ++i) labels.data.as<uint8_t>()[i] = i % 2 ? 3 : 5;
  GatherMap halfway;
  halfway.offset[2] = 0.5f;
  for (const float label : gathered(labels, halfway, {1, 1, 11}, {.interpolation = Interpolation::kLabel}))
    EXPECT_EQ(label, 3);
}

}  // namespace
}  // namespace vox
