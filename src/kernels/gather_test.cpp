#include "kernels/gather.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "kernels/gather_point.h"

namespace vox {
namespace {

constexpr DType kStoredTypes[] = {DType::kUInt8,  DType::kInt8,  DType::kUInt16,  DType::kInt16,
                                  DType::kUInt32, DType::kInt32, DType::kFloat32, DType::kFloat64};
constexpr Padding kPaddings[] = {Padding::kConstant, Padding::kEdge, Padding::kReflect};

Volume random_volume(DType dtype, const Extent3& extent, Random& random) {
  Volume volume = allocate_volume({.dtype = dtype, .extent = extent});
  with_type(dtype, [&](auto typed) {
    using T = decltype(typed);
    T* data = volume.data.as<T>();
    for (int64_t i = 0; i < extent.voxels(); ++i)
      data[i] = std::is_floating_point_v<T> ? static_cast<T>(random.normal()) : static_cast<T>(random.bits());
  });
  return volume;
}

GatherMap random_map(const Extent3& volume, const Extent3& output, Random& random) {
  GatherMap map;
  for (int axis = 0; axis < 3; ++axis) {
    double corner = static_cast<double>(volume[axis]) * random.uniform(0.2, 0.8);
    for (int out = 0; out < 3; ++out) {
      map.matrix[axis][out] = static_cast<float>((axis == out ? 0.8 : 0.0) + random.uniform(-0.6, 0.6));
      corner -= map.matrix[axis][out] * static_cast<double>(output[out]) / 2;
    }
    map.origin[axis] = static_cast<int64_t>(std::floor(corner));
    map.offset[axis] = static_cast<float>(corner - std::floor(corner));
  }
  return map;
}

// One of the 48 signed permutations, moved so that it reads around the middle of the volume.
GatherMap random_permutation(const Extent3& volume, const Extent3& output, Random& random) {
  int order[3] = {0, 1, 2};
  for (int i = 2; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  GatherMap map;
  for (int axis = 0; axis < 3; ++axis) {
    const bool backward = random.chance(0.5);
    for (int out = 0; out < 3; ++out) map.matrix[axis][out] = out != order[axis] ? 0.0f : backward ? -1.0f : 1.0f;
    map.origin[axis] = random.below(volume[axis]) - volume[axis] / 4 + (backward ? output[order[axis]] / 2 : 0);
  }
  return map;
}

template <class T>
GatherSource<T> whole_source(const Volume& volume, const GatherMap& map, const GatherOptions& options) {
  GatherSource<T> source{};
  source.data = volume.as<T>();
  for (int axis = 0; axis < 3; ++axis) {
    source.origin[axis] = map.origin[axis];
    source.size[axis] = source.end[axis] = volume.info.extent[axis];
  }
  source.stride[0] = volume.info.extent.y * volume.info.extent.x;
  source.stride[1] = volume.info.extent.x;
  source.stride[2] = 1;
  source.scale = static_cast<float>(volume.info.scale);
  source.offset = static_cast<float>(volume.info.offset);
  source.scaled = volume.info.scale != 1 || volume.info.offset != 0;
  source.padding = options.padding;
  source.pad_value = options.pad_value;
  return source;
}

std::vector<float> by_definition(const Volume& volume, const GatherMap& map, const Extent3& extent,
                                 const GatherOptions& options) {
  std::vector<float> out;
  with_type(volume.info.dtype, [&](auto typed) {
    const auto source = whole_source<decltype(typed)>(volume, map, options);
    for (int64_t z = 0; z < extent.z; ++z)
      for (int64_t y = 0; y < extent.y; ++y)
        for (int64_t x = 0; x < extent.x; ++x) {
          float p[3];
          for (int axis = 0; axis < 3; ++axis) {
            const GatherAxis row{map.matrix[axis][0], map.matrix[axis][1], map.matrix[axis][2], map.offset[axis]};
            p[axis] =
                position_at(row, row_start(row, static_cast<float>(z), static_cast<float>(y)), static_cast<float>(x));
          }
          out.push_back(options.interpolation == Interpolation::kLinear ? gather_linear(source, p[0], p[1], p[2])
                                                                        : gather_nearest(source, p[0], p[1], p[2]));
        }
  });
  return out;
}

std::vector<float> gathered(const VolumeView& view, const GatherMap& map, const Extent3& extent,
                            const GatherOptions& options) {
  std::vector<float> out(static_cast<size_t>(extent.voxels()), std::numeric_limits<float>::quiet_NaN());
  gather_cpu({.data = out.data(), .extent = extent}, view, map, options);
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Gather, FastPathsAreTheDefinitionBitForBit) {
  for (const DType dtype : kStoredTypes)
    for (const Padding padding : kPaddings)
      for (const Interpolation interpolation : {Interpolation::kLinear, Interpolation::kNearest})
        for (uint64_t trial = 0; trial < 6; ++trial) {
          Random random(7, trial, static_cast<uint32_t>(dtype));
          const Extent3 volume{9 + random.below(30), 9 + random.below(30), 9 + random.below(40)};
          const Extent3 extent{1 + random.below(12), 1 + random.below(20), 1 + random.below(45)};
          Volume source = random_volume(dtype, volume, random);
          if (trial % 2 == 1) source.info.scale = 0.37, source.info.offset = -5.5;
          const GatherMap map =
              trial % 3 == 2 ? random_permutation(volume, extent, random) : random_map(volume, extent, random);
          const GatherOptions options{interpolation, padding, -3.25f};
          EXPECT_TRUE(
              same_bits(gathered(view_of(source), map, extent, options), by_definition(source, map, extent, options)))
              << name_of(dtype) << " trial " << trial << " padding " << static_cast<int>(padding);
        }
}

// Another arithmetic altogether: weights in double, taps one by one.
double brute_force(const float* data, const Extent3& size, const double (&p)[3], double pad) {
  double sum = 0;
  for (int corner = 0; corner < 8; ++corner) {
    double weight = 1;
    int64_t index[3];
    for (int axis = 0; axis < 3; ++axis) {
      const double base = std::floor(p[axis]);
      const bool upper = corner >> axis & 1;
      index[axis] = static_cast<int64_t>(base) + upper;
      weight *= upper ? p[axis] - base : 1 - (p[axis] - base);
    }
    bool inside = true;
    for (int axis = 0; axis < 3; ++axis) inside = inside && index[axis] >= 0 && index[axis] < size[axis];
    sum += weight * (inside ? static_cast<double>(data[(index[0] * size.y + index[1]) * size.x + index[2]]) : pad);
  }
  return sum;
}

TEST(Gather, LinearIsTrilinearWithinTheRoundingOfPositions) {
  Random random(17, 0, 0);
  const Extent3 volume{40, 30, 50}, extent{20, 24, 40};
  const Volume source = random_volume(DType::kFloat32, volume, random);
  const GatherMap map = random_map(volume, extent, random);
  const std::vector<float> out = gathered(view_of(source), map, extent, {.pad_value = 0.5f});
  size_t i = 0;
  for (int64_t z = 0; z < extent.z; ++z)
    for (int64_t y = 0; y < extent.y; ++y)
      for (int64_t x = 0; x < extent.x; ++x, ++i) {
        double p[3];
        for (int axis = 0; axis < 3; ++axis) {
          const float* m = map.matrix[axis];
          p[axis] = static_cast<double>(map.origin[axis]) + static_cast<double>(map.offset[axis]) +
                    static_cast<double>(m[0]) * static_cast<double>(z) +
                    static_cast<double>(m[1]) * static_cast<double>(y) +
                    static_cast<double>(m[2]) * static_cast<double>(x);
        }
        // Positions below 64 carry three roundings of 2^-19; values differ by up to 8 from tap to tap on three axes.
        ASSERT_NEAR(out[i], brute_force(source.as<float>(), volume, p, 0.5), 2e-4);
      }
}

TEST(Gather, IdentityReturnsTheSourceBitForBit) {
  for (const DType dtype : kStoredTypes) {
    Random random(27, 0, 0);
    const Extent3 extent{5, 6, 19};
    const Volume source = random_volume(dtype, extent, random);
    for (const Interpolation interpolation : {Interpolation::kLinear, Interpolation::kNearest}) {
      const std::vector<float> out = gathered(view_of(source), {}, extent, {.interpolation = interpolation});
      with_type(dtype, [&](auto typed) {
        const auto* stored = source.as<decltype(typed)>();
        for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], static_cast<float>(stored[i])) << name_of(dtype);
      });
    }
  }
}

TEST(Gather, SpecialFloatsSurviveCopiesAndNeverPoisonAcrossZeroWeights) {
  Volume source = allocate_volume({.dtype = DType::kFloat32, .extent = {1, 1, 16}});
  float* data = source.data.as<float>();
  for (int i = 0; i < 16; ++i) data[i] = static_cast<float>(i);
  data[3] = INFINITY, data[4] = -0.0f, data[5] = NAN;
  const std::vector<float> copied = gathered(view_of(source), {}, {1, 1, 16}, {});
  EXPECT_EQ(std::memcmp(copied.data(), data, 16 * sizeof(float)), 0);
  GatherMap halves;  // 0, 0.5, 1, ...: every second position is a voxel of weight one
  halves.matrix[2][2] = 0.5f;
  const std::vector<float> out = gathered(view_of(source), halves, {1, 1, 31}, {});
  for (size_t i = 0; i < 16; ++i) EXPECT_TRUE(i == 5 || out[2 * i] == data[i]) << i;
  EXPECT_TRUE(std::signbit(out[8]));
}

GatherMap quarter_turn(int64_t size) {  // about z, of a cube
  GatherMap map;
  const float turned[3][3] = {{1, 0, 0}, {0, 0, 1}, {0, -1, 0}};
  std::memcpy(map.matrix, turned, sizeof turned);
  map.origin = {0, 0, size - 1};
  return map;
}

TEST(Gather, FourQuarterTurnsAreTheIdentity) {
  Random random(37, 0, 0);
  const Extent3 cube{13, 13, 13};
  Volume volume = random_volume(DType::kFloat32, cube, random);
  const std::vector<float> before(volume.as<float>(), volume.as<float>() + cube.voxels());
  for (int turn = 0; turn < 4; ++turn) {
    const std::vector<float> turned = gathered(view_of(volume), quarter_turn(13), cube, {});
    EXPECT_FALSE(turn < 3 && same_bits(turned, before));
    std::memcpy(volume.data.data(), turned.data(), turned.size() * sizeof(float));
  }
  EXPECT_EQ(std::memcmp(volume.data.data(), before.data(), before.size() * sizeof(float)), 0);
}

std::vector<float> gathered_with_nan_outside(const Volume& source, const Box3& kept, const GatherMap& map,
                                             const Extent3& extent, const GatherOptions& options) {
  const Extent3 size = source.info.extent;
  Volume poisoned = allocate_volume(source.info);
  for (int64_t i = 0; i < size.voxels(); ++i) {
    const Extent3 at{i / (size.y * size.x), i / size.x % size.y, i % size.x};
    const bool inside = kept.contains({at, at + Extent3{1, 1, 1}});
    poisoned.data.as<float>()[i] = inside ? source.as<float>()[i] : NAN;
  }
  return gathered(view_of(poisoned), map, extent, options);
}

TEST(Gather, ReadBoxIsEnough) {
  for (const Padding padding : kPaddings)
    for (uint64_t trial = 0; trial < 30; ++trial) {
      Random random(47, trial, 0);
      const Extent3 volume{10 + random.below(20), 10 + random.below(20), 10 + random.below(20)}, extent{6, 7, 11};
      const GatherMap map = random_map(volume, extent, random);
      const GatherOptions options{trial % 2 ? Interpolation::kLinear : Interpolation::kNearest, padding, 2.0f};
      const Volume source = random_volume(DType::kFloat32, volume, random);
      const std::vector<float> expected = gathered(view_of(source), map, extent, options);
      const Box3 box = read_box(map, extent, options, volume);
      EXPECT_TRUE(same_bits(gathered_with_nan_outside(source, box, map, extent, options), expected)) << trial;
      VolumeView cut = view_of(source);
      cut.data += ((box.begin.z * volume.y + box.begin.y) * volume.x + box.begin.x) * 4;
      cut.box = box;
      EXPECT_TRUE(same_bits(gathered(cut, map, extent, options), expected)) << trial << ": a view of the box alone";
    }
}

TEST(Gather, SourceBoxInsideAVolumeLosesAVoxelOnEverySideWhenCut) {
  for (uint64_t trial = 0; trial < 10; ++trial) {
    Random random(48, trial, 0);
    const Extent3 volume{60, 60, 60}, extent{6, 7, 11};
    GatherMap map = random_map(volume, extent, random);
    map.origin = map.origin + (Extent3{30, 30, 30} - source_box(map, extent, Interpolation::kLinear).begin);
    const GatherOptions options{trial % 2 ? Interpolation::kLinear : Interpolation::kNearest};
    const Volume source = random_volume(DType::kFloat32, volume, random);
    const std::vector<float> expected = gathered(view_of(source), map, extent, options);
    const Box3 box = source_box(map, extent, options.interpolation);
    ASSERT_TRUE(whole(volume).contains(box));
    EXPECT_TRUE(same_bits(gathered_with_nan_outside(source, box, map, extent, options), expected));
    for (int side = 0; side < 6; ++side) {
      Box3 cut = box;
      side % 2 ? --cut.end[side / 2] : ++cut.begin[side / 2];
      EXPECT_FALSE(same_bits(gathered_with_nan_outside(source, cut, map, extent, options), expected)) << side;
    }
  }
}

TEST(Gather, SourceBoxHasNoSpareVoxel) {
  GatherMap map;
  map.origin = {10, 20, 30};
  EXPECT_EQ(source_box(map, {4, 5, 6}, Interpolation::kLinear), (Box3{{10, 20, 30}, {14, 25, 36}}));
  map.offset[2] = 0.25f;
  EXPECT_EQ(source_box(map, {4, 5, 6}, Interpolation::kLinear), (Box3{{10, 20, 30}, {14, 25, 37}}));
  EXPECT_EQ(source_box(map, {4, 5, 6}, Interpolation::kNearest), (Box3{{10, 20, 30}, {14, 25, 36}}));
  map.matrix[2][2] = -2;
  EXPECT_EQ(source_box(map, {4, 5, 6}, Interpolation::kLinear), (Box3{{10, 20, 20}, {14, 25, 32}}));
}

TEST(Gather, OutsideVoxelsAreExactlyThePadValue) {
  Random random(57, 0, 0);
  Volume source = random_volume(DType::kInt16, {8, 8, 8}, random);
  source.info.scale = 0.1, source.info.offset = 1000;
  GatherMap map = random_map({8, 8, 8}, {4, 4, 16}, random);
  map.origin = map.origin + Extent3{1000, 0, 0};
  for (const float value : gathered(view_of(source), map, {4, 4, 16}, {.pad_value = -1024.0f}))
    EXPECT_EQ(value, -1024.0f);
  EXPECT_TRUE(read_box(map, {4, 4, 16}, {}, {8, 8, 8}).empty());
}

TEST(Gather, ReflectionIsNumPys) {  // np.pad([0..4], 6, mode="reflect")
  Volume source = allocate_volume({.dtype = DType::kUInt8, .extent = {1, 1, 5}});
  for (int i = 0; i < 5; ++i) source.data.as<uint8_t>()[i] = static_cast<uint8_t>(i);
  GatherMap map;
  map.origin = {0, 0, -6};
  const std::vector<float> padded = gathered(view_of(source), map, {1, 1, 17}, {.padding = Padding::kReflect});
  EXPECT_EQ(padded, (std::vector<float>{2, 3, 4, 3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1, 0, 1, 2}));
}

TEST(Gather, EveryOutputTypeAndLayoutHoldsTheSameValues) {
  Random random(67, 0, 0);
  const Extent3 volume{20, 20, 30}, extent{5, 6, 21};
  const Volume source = random_volume(DType::kUInt8, volume, random);
  for (const GatherMap& map : {random_map(volume, extent, random), random_permutation(volume, extent, random)}) {
    const std::vector<float> expected = gathered(view_of(source), map, extent, {});
    constexpr int64_t kChannels = 3;
    const size_t count = expected.size() * kChannels;
    std::vector<float> floats(count, -1);
    std::vector<BFloat16> halves(count, {0xffff});
    std::vector<uint8_t> bytes(count, 99);
    gather_cpu({floats.data() + 1, DType::kFloat32, extent, kChannels}, view_of(source), map, {});
    gather_cpu({halves.data() + 1, DType::kBFloat16, extent, kChannels}, view_of(source), map, {});
    gather_cpu({bytes.data() + 1, DType::kUInt8, extent, kChannels}, view_of(source), map, {});
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(floats[3 * i + 1], expected[i]);
      EXPECT_EQ(halves[3 * i + 1].bits, to_bfloat16(expected[i]).bits);
      EXPECT_EQ(bytes[3 * i + 1], static_cast<uint8_t>(std::floor(expected[i] + 0.5f)));
      EXPECT_TRUE(floats[3 * i] == -1 && floats[3 * i + 2] == -1 && bytes[3 * i] == 99 && bytes[3 * i + 2] == 99);
    }
  }
}

// 19 values a row: two groups of eight and a tail.
TEST(Gather, ConvertedRowsAreTheDefinitionBitForBit) {
  Random random(77, 0, 0);
  const Extent3 extent{3, 4, 19};
  Volume source = random_volume(DType::kFloat32, extent, random);
  float* data = source.data.as<float>();
  for (int64_t i = 0; i < extent.voxels(); ++i) data[i] = i % 2 ? data[i] : 100 + 100 * data[i];
  const float special[] = {NAN, -NAN, INFINITY, -INFINITY, -0.0f, 0.5f, 1.5f, 254.5f, 255.5f, 1.00390625f, 3.4e38f};
  for (size_t i = 0; i < std::size(special); ++i) data[3 * i] = special[i];
  std::vector<BFloat16> halves(static_cast<size_t>(extent.voxels()));
  std::vector<uint8_t> bytes(halves.size());
  gather_cpu({halves.data(), DType::kBFloat16, extent}, view_of(source), {}, {});
  gather_cpu({bytes.data(), DType::kUInt8, extent}, view_of(source), {}, {});
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(halves[i].bits, to_bfloat16(data[i]).bits) << data[i];
    EXPECT_EQ(bytes[i], to_label(data[i])) << data[i];
  }
}

TEST(Gather, ConversionsSaturateAndKeepNaN) {
  EXPECT_EQ(to_label(-3), 0);
  EXPECT_EQ(to_label(2.5f), 3);
  EXPECT_EQ(to_label(1e9f), 255);
  for (const float value : {0.0f, -0.0f, 1.00390625f, 1.01171875f, 3e38f, INFINITY, -INFINITY, NAN})
    EXPECT_EQ(to_bfloat16_bits(value), to_bfloat16(value).bits) << value;
}

}  // namespace
}  // namespace vox
