#include "volume/preprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "volume/foreground.h"
#include "volume/median.h"
#include "volume/resample.h"
#include "volume/statistics.h"
#include "volume/test_volumes.h"

namespace vox {
namespace {

using testing::HasSubstr;

PreprocessStep step(const std::string& name, const std::vector<std::pair<std::string, std::string>>& values = {}) {
  PreprocessStep result{name, {}};
  result.params.kind = Tree::Kind::kMap;
  for (const auto& [key, value] : values) result.params.members.emplace_back(key, scalar_tree(value));
  return result;
}

Volume applied(Volume volume, const std::vector<PreprocessStep>& steps, Role role = Role::kImage, int64_t channel = 0) {
  DataOptions data;
  data.preprocess = steps;
  const Preprocess preprocess(data);
  const VolumeInfo plan = preprocess.plan(volume.info, role, channel);
  preprocess.apply(volume, role, channel);
  EXPECT_EQ(plan.extent, volume.info.extent);
  EXPECT_GE(size_of(plan.dtype), size_of(volume.info.dtype)) << "the plan is an upper bound";
  return volume;
}

std::vector<double> values_of(const Volume& volume) {
  std::vector<double> values;
  const VolumeView view = view_of(volume);
  for (int64_t i = 0; i < volume.info.extent.voxels(); ++i) values.push_back(value_at(view, 0, 0, i));
  return values;
}

Volume hounsfield() {
  Volume volume = noise_volume<int16_t>({5, 9, 11}, 4, 0, 3000);
  volume.info.offset = -1024;
  return volume;
}

TEST(Preprocess, ClipLimitsValuesInTheStoredType) {
  const Volume before = hounsfield();
  const Volume after = applied(applied(hounsfield(), {}), {step("clip", {{"min", "-160"}, {"max", "240"}})});
  EXPECT_EQ(after.info.dtype, DType::kInt16);
  const std::vector<double> in = values_of(before), out = values_of(after);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i], std::clamp(in[i], -160.0, 240.0));
}

TEST(Preprocess, ClipAtAValueThatIsNotStoredBecomesReal) {
  const Volume after = applied(hounsfield(), {step("clip", {{"min", "-0.5"}, {"max", "9000"}})});
  EXPECT_EQ(after.info.dtype, DType::kFloat32);
  const std::vector<double> in = values_of(hounsfield()), out = values_of(after);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i], std::max(in[i], -0.5));
}

TEST(Preprocess, WindowMapsToTheUnitIntervalInTheStoredType) {
  const Volume after = applied(hounsfield(), {step("window", {{"center", "40"}, {"width", "400"}})});
  EXPECT_EQ(after.info.dtype, DType::kInt16);
  const std::vector<double> in = values_of(hounsfield()), out = values_of(after);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(out[i], std::clamp((in[i] + 160) / 400, 0.0, 1.0), 1e-12);
}

TEST(Preprocess, ZScoreHasMeanZeroAndDeviationOne) {
  for (const bool foreground : {false, true}) {
    Volume volume = make_volume<uint8_t>({4, 7, 9}, [](int64_t v) { return v % 3 == 0 ? 0 : v % 200; });
    std::vector<double> in = values_of(volume);
    const Volume after = applied(std::move(volume), {step("zscore", {{"foreground", foreground ? "true" : "false"}})});
    EXPECT_EQ(after.info.dtype, foreground ? DType::kFloat32 : DType::kUInt8);
    std::vector<double> counted = in;
    if (foreground) std::erase(counted, 0.0);
    double mean = 0, variance = 0;
    for (const double v : counted) mean += v / static_cast<double>(counted.size());
    for (const double v : counted) variance += (v - mean) * (v - mean) / static_cast<double>(counted.size());
    const std::vector<double> out = values_of(after);
    for (size_t i = 0; i < in.size(); ++i) {
      const bool background = foreground && in[i] == 0;
      EXPECT_NEAR(out[i], background ? 0 : (in[i] - mean) / std::sqrt(variance), foreground ? 1e-6 : 1e-9);
    }
  }
}

// Up to the rounding of scale and offset.
TEST(Preprocess, BackgroundIsWhatEarlierStepsMadeZero) {
  for (const double scale : {1.0, 0.1, 1 / 3.0}) {
    Volume volume = make_volume<int16_t>({4, 7, 9}, [](int64_t v) { return v % 3 == 0 ? 7 : v % 200 + 8; });
    volume.info.scale = scale;
    volume.info.offset = -7 * scale;
    const std::vector<double> in = values_of(volume);
    const Volume after = applied(std::move(volume), {step("normalize", {{"mean", "0"}, {"std", "0.7"}}),
                                                     step("zscore", {{"foreground", "true"}})});
    const std::vector<double> out = values_of(after);
    double sum = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_TRUE(i % 3 != 0 || out[i] == 0) << scale;
      sum += out[i];
    }
    EXPECT_NEAR(sum / static_cast<double>(in.size()), 0, 1e-6) << scale;
  }
}

TEST(Preprocess, NormalizeTakesWhatItIsGivenAndKeepsTheStoredType) {
  const Volume after = applied(hounsfield(), {step("normalize", {{"mean", "40.5"}, {"std", "12.25"}})});
  EXPECT_EQ(after.info.dtype, DType::kInt16);
  const std::vector<double> in = values_of(hounsfield()), out = values_of(after);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(out[i], (in[i] - 40.5) / 12.25, 1e-9);
}

TEST(Preprocess, MinMaxMapsTheRange) {
  const Volume after = applied(hounsfield(), {step("minmax", {{"low", "-1"}, {"high", "1"}})});
  const std::vector<double> out = values_of(after);
  EXPECT_NEAR(*std::min_element(out.begin(), out.end()), -1, 1e-12);
  EXPECT_NEAR(*std::max_element(out.begin(), out.end()), 1, 1e-12);
}

TEST(Preprocess, ConstantVolumesStayFinite) {
  for (const char* name : {"zscore", "minmax", "percentile"}) {
    const Volume after = applied(make_volume<uint8_t>({2, 3, 4}, [](int64_t) { return 7; }), {step(name)});
    EXPECT_THAT(values_of(after), testing::Each(0.0)) << name;
  }
}

TEST(Preprocess, PercentileIsTheNearestRank) {
  const auto check = [](Volume volume) {
    std::vector<double> in = values_of(volume), sorted = in;
    std::sort(sorted.begin(), sorted.end());
    const auto rank = [&](double percent) {
      return sorted[static_cast<size_t>(std::llround(percent / 100 * static_cast<double>(sorted.size() - 1)))];
    };
    const double low = rank(5), high = rank(90);
    const DType dtype = volume.info.dtype;
    const Volume after = applied(std::move(volume), {step("percentile", {{"low", "5"}, {"high", "90"}})});
    EXPECT_EQ(after.info.dtype, dtype);
    const std::vector<double> out = values_of(after);
    for (size_t i = 0; i < in.size(); ++i)
      ASSERT_NEAR(out[i], (std::clamp(in[i], low, high) - low) / (high - low), 1e-6);
  };
  check(hounsfield());
  check(noise_volume<uint8_t>({4, 5, 6}, 1, 0, 256));
  check(noise_volume<float>({4, 5, 6}, 1, -3, 5));
  Volume falling = noise_volume<uint8_t>({4, 5, 6}, 1, 0, 256);
  falling.info.scale = -0.5;
  check(std::move(falling));
}

TEST(Preprocess, StepsComposeInTheirOrder) {
  const Volume after = applied(hounsfield(), {step("clip", {{"min", "-100"}, {"max", "100"}}), step("minmax"),
                                              step("clip", {{"min", "0.25"}, {"max", "0.75"}})});
  const std::vector<double> in = values_of(hounsfield()), out = values_of(after);
  for (size_t i = 0; i < in.size(); ++i)
    EXPECT_NEAR(out[i], std::clamp((std::clamp(in[i], -100.0, 100.0) + 100) / 200, 0.25, 0.75), 1e-6);
}

TEST(Preprocess, LabelsSeeOnlyResample) {
  const std::vector<PreprocessStep> steps{step("zscore"), step("resample", {{"factor", "2"}}), step("median")};
  const Volume label = make_volume<uint8_t>({2, 2, 3}, [](int64_t v) { return v * 20; });
  const Volume after = applied(make_volume<uint8_t>({2, 2, 3}, [](int64_t v) { return v * 20; }), steps, Role::kLabel);
  EXPECT_EQ(after.info.extent, (Extent3{4, 4, 6}));
  for (int64_t z = 0; z < 4; ++z)
    for (int64_t y = 0; y < 4; ++y)
      for (int64_t x = 0; x < 6; ++x)
        EXPECT_EQ(value_at(view_of(after), z, y, x), value_at(view_of(label), z / 2, y / 2, x / 2));
}

TEST(Preprocess, WrongStepsAreNamed) {
  EXPECT_THAT(error_of([] { applied(hounsfield(), {step("zscor")}); }), HasSubstr("did you mean zscore"));
  EXPECT_THAT(error_of([] { applied(hounsfield(), {step("clip", {{"minn", "0"}})}); }), HasSubstr("minn"));
  EXPECT_THAT(error_of([] { applied(hounsfield(), {step("median", {{"size", "4"}})}); }), HasSubstr("odd"));
  EXPECT_THAT(error_of([] { applied(hounsfield(), {step("resample")}); }), HasSubstr("one of spacing, shape"));
  EXPECT_THAT(error_of([] { applied(hounsfield(), {step("resample", {{"spacing", "1,1,1"}})}); }),
              HasSubstr("spacing"));
  EXPECT_THAT(error_of([] { applied(hounsfield(), {step("zscore", {{"scope", "dataset"}}), step("minmax")}); }),
              HasSubstr("must be the last step"));
  EXPECT_THAT(error_of([] { applied(hounsfield(), {step("zscore", {{"scope", "dataset"}, {"foreground", "true"}})}); }),
              HasSubstr("belongs to scope: case"));
}

TEST(Preprocess, EveryStepRunsWithItsDefaultsOrSaysWhatItNeeds) {
  for (const PreprocessEntry& entry : all_preprocess_steps()) {
    EXPECT_FALSE(entry.help.empty());
    EXPECT_FALSE(entry.options().empty()) << entry.name;
    if (entry.name != "resample") applied(hounsfield(), {step(entry.name)});
  }
}

int64_t mirror(int64_t at, int64_t extent) {  // d c b a | a b c d | d c b a
  while (at < 0 || at >= extent) at = at < 0 ? -1 - at : 2 * extent - 1 - at;
  return at;
}

template <class T>
void expect_median(const Extent3& extent, int64_t size) {
  const Volume volume = noise_volume<T>(extent, 3, 0, 200);
  const Volume filtered = median_filter(volume, size);
  for (int64_t i = 0; i < extent.voxels(); ++i) {
    const int64_t z = i / (extent.y * extent.x), y = i / extent.x % extent.y, x = i % extent.x;
    std::vector<T> cube;
    for (int64_t dz = -size / 2; dz <= size / 2; ++dz)
      for (int64_t dy = -size / 2; dy <= size / 2; ++dy)
        for (int64_t dx = -size / 2; dx <= size / 2; ++dx)
          cube.push_back(volume.as<T>()[(mirror(z + dz, extent.z) * extent.y + mirror(y + dy, extent.y)) * extent.x +
                                        mirror(x + dx, extent.x)]);
    std::sort(cube.begin(), cube.end());
    ASSERT_EQ(filtered.as<T>()[i], cube[cube.size() / 2]) << z << ' ' << y << ' ' << x;
  }
}

TEST(Median, MatchesSortingTheCube) {
  expect_median<uint8_t>({5, 6, 130}, 3);
  expect_median<int16_t>({4, 5, 64}, 3);
  expect_median<float>({3, 4, 67}, 3);
  expect_median<uint8_t>({1, 1, 1}, 3);
  expect_median<uint8_t>({6, 7, 9}, 5);
  expect_median<uint8_t>({2, 7, 3}, 7);
}

TEST(Resample, LinearMatchesTheFormulaAndRampsStayRamps) {
  const Extent3 in{6, 8, 10}, out{9, 5, 20};
  const Volume ramp = make_volume<float>(in, [&](int64_t v) {
    return static_cast<double>(v / 80) * 100 + static_cast<double>(v / 10 % 8) * 10 + static_cast<double>(v % 10);
  });
  const Volume result = resample(ramp, out, ResampleMethod::kLinear);
  const auto place = [](int64_t o, int64_t from, int64_t to) {
    const double at = (static_cast<double>(o) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5;
    return std::clamp(at, 0.0, static_cast<double>(from - 1));
  };
  for (int64_t z = 0; z < out.z; ++z)
    for (int64_t y = 0; y < out.y; ++y)
      for (int64_t x = 0; x < out.x; ++x)
        ASSERT_NEAR(value_at(view_of(result), z, y, x),
                    100 * place(z, in.z, out.z) + 10 * place(y, in.y, out.y) + place(x, in.x, out.x), 1e-3);
}

TEST(Resample, WorldPositionsStay) {
  VolumeInfo info;
  info.extent = {10, 20, 30};
  info.spacing = Spacing3{3, 2, 1};
  info.affine = Affine{{{1, 0, 0, -5}, {0, 2, 0, 7}, {0, 0, 3, 1}}};
  const VolumeInfo after = resampled_info(info, {5, 40, 30});
  EXPECT_EQ(*after.spacing, (Spacing3{6, 1, 1}));
  // The corner of the grid, voxel position -1/2, lies where it lay.
  EXPECT_NEAR((*after.affine)[2][3] - 0.5 * (*after.affine)[2][2], 1 - 0.5 * 3, 1e-12);
  EXPECT_NEAR((*after.affine)[1][3] - 0.5 * (*after.affine)[1][1], 7 - 0.5 * 2, 1e-12);
}

TEST(Statistics, PartsMergeToTheWholeAtLargeMeans) {
  const Volume volume = make_volume<float>({1, 10, 5000}, [](int64_t v) { return 30000 + (v % 2 ? 2 : -2); });
  const Moments moments = moments_of(volume.data.data(), DType::kFloat32, 50000);
  EXPECT_NEAR(moments.mean, 30000, 1e-9);
  EXPECT_NEAR(moments.deviation(), 2, 1e-9);
  EXPECT_EQ(moments.minimum, 29998);
  EXPECT_EQ(moments.maximum, 30002);
}

TEST(Statistics, HistogramAndPassesAgree) {
  const Volume small = noise_volume<int16_t>({4, 50, 60}, 1, -30000, 30000);
  const Volume wide =
      make_volume<int32_t>({4, 50, 60}, [&](int64_t v) { return static_cast<double>(small.as<int16_t>()[v]); });
  const Moments a = moments_of(small.data.data(), DType::kInt16, 12000);
  const Moments b = moments_of(wide.data.data(), DType::kInt32, 12000);
  EXPECT_NEAR(a.mean, b.mean, 1e-8);
  EXPECT_NEAR(a.deviation(), b.deviation(), 1e-8);
  EXPECT_EQ(a.minimum, b.minimum);
  EXPECT_EQ(a.maximum, b.maximum);
}

TEST(LabelScan, ListsAreSpreadBoundedAndTheSameInAnyParts) {
  const Volume label = make_volume<uint8_t>({1, 100, 1500}, [](int64_t v) { return v % 7 == 0 ? 3 : v % 2; });
  LabelScan once, parts;
  once.add(label.data.data(), DType::kUInt8, 150000, 1, 0);
  for (int64_t at = 0; at < 150000; at += 1000) parts.add(label.data.data() + at, DType::kUInt8, 1000, 1, 0);
  EXPECT_EQ(once.counts(), parts.counts());
  const auto found = once.take_foreground();
  EXPECT_EQ(found, parts.take_foreground());
  for (const auto& [value, voxels] : found) {
    EXPECT_LE(voxels.size(), 10000u);
    EXPECT_GE(voxels.size(), 5000u);
    for (size_t i = 1; i < voxels.size(); ++i) ASSERT_LE(voxels[i] - voxels[i - 1], 70);
    for (const int64_t voxel : voxels) ASSERT_EQ(label.as<uint8_t>()[voxel], value);
  }
}

}  // namespace
}  // namespace vox
