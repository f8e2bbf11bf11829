#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/drawn_seed.h"
#include "volume/preprocess.h"
#include "volume/test_volumes.h"
#include "volume/unit.h"

namespace vox {
namespace {

using testing::Each;
using testing::HasSubstr;

PreprocessStep step_on(const std::string& name, const std::vector<std::pair<std::string, std::string>>& values,
                       const std::vector<int64_t>& channels = {}) {
  PreprocessStep result{name, {}};
  result.params.kind = Tree::Kind::kMap;
  for (const auto& [key, value] : values) result.params.members.emplace_back(key, scalar_tree(value));
  std::vector<Tree> numbers;
  for (const int64_t channel : channels) numbers.push_back(scalar_tree(std::to_string(channel)));
  if (!channels.empty()) result.params.members.emplace_back("channels", list_tree(numbers));
  return result;
}

Preprocess steps_on(const std::vector<PreprocessStep>& steps) {
  DataOptions data;
  data.preprocess = steps;
  return Preprocess(data);
}

std::vector<double> values_after(const Volume& volume) {
  std::vector<double> values;
  for (int64_t i = 0; i < volume.info.extent.voxels(); ++i) values.push_back(value_at(view_of(volume), 0, 0, i));
  return values;
}

// Over all pairs of voxels; the limit where there is no voxel of the other kind.
std::vector<double> brute_force_distances(const Volume& mask, double limit) {
  const Extent3& extent = mask.info.extent;
  const Spacing3 spacing = mask.info.spacing.value_or(Spacing3{});
  const auto place = [&](int64_t i, int axis) {
    const int64_t at = axis == 0 ? i / (extent.y * extent.x) : axis == 1 ? i / extent.x % extent.y : i % extent.x;
    return static_cast<double>(at) * spacing[axis];
  };
  const auto inside = [&](int64_t i) { return value_at(view_of(mask), 0, 0, i) != 0; };
  std::vector<double> distances;
  for (int64_t i = 0; i < extent.voxels(); ++i) {
    double nearest = limit;
    for (int64_t k = 0; k < extent.voxels(); ++k)
      if (inside(k) != inside(i))
        nearest = std::min(nearest,
                           std::hypot(place(i, 0) - place(k, 0), place(i, 1) - place(k, 1), place(i, 2) - place(k, 2)));
    distances.push_back(inside(i) ? -nearest : nearest);
  }
  return distances;
}

Volume distance_of(Volume mask, const std::string& limit, const std::string& is_signed = "true") {
  const Preprocess preprocess = steps_on({step_on("distance", {{"limit", limit}, {"signed", is_signed}})});
  const VolumeInfo plan = preprocess.plan(mask.info, Role::kImage, 0);
  preprocess.apply(mask, Role::kImage, 0);
  EXPECT_EQ(mask.info.dtype, DType::kInt8);
  EXPECT_EQ(mask.info.dtype, plan.dtype);
  EXPECT_EQ(mask.info.scale, plan.scale);
  return mask;
}

TEST(Distance, IsThatOfBruteForceOnAnisotropicGrids) {
  const uint64_t seed = drawn_seed();
  SCOPED_TRACE(concat("seed ", seed));
  Random random(seed, 0, 1);
  for (int repeat = 0; repeat < 12; ++repeat) {
    const Extent3 extent{1 + static_cast<int64_t>(random.uniform(0, 9)), 1 + static_cast<int64_t>(random.uniform(0, 9)),
                         1 + static_cast<int64_t>(random.uniform(0, 20))};
    const double share = random.uniform(0.02, 0.98);
    Volume mask = make_volume<int16_t>(extent, [&](int64_t) { return random.uniform(0, 1) < share ? -3 : 0; });
    mask.info.spacing = Spacing3{random.uniform(0.5, 5), random.uniform(0.5, 5), random.uniform(0.5, 5)};
    const double limit = std::round(random.uniform(2, 30));
    const std::vector<double> expected = brute_force_distances(mask, limit);
    Volume copy = make_volume<int16_t>(extent, [&](int64_t i) { return mask.as<int16_t>()[i]; });
    copy.info.spacing = mask.info.spacing;
    const std::vector<double> found = values_after(distance_of(std::move(mask), concat(limit)));
    const std::vector<double> outside = values_after(distance_of(std::move(copy), concat(limit), "false"));
    const double half_step = 0.5 / 127 + 1e-6;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i] / limit, half_step) << extent << " at " << i;
      ASSERT_NEAR(outside[i], std::max(expected[i], 0.0) / limit, half_step) << extent << " at " << i;
    }
  }
}

TEST(Distance, OfAnEmptyMaskIsOneAndOfAFullOneMinusOne) {
  const auto constant = [](double value) { return make_volume<uint8_t>({3, 4, 5}, [=](int64_t) { return value; }); };
  EXPECT_THAT(values_after(distance_of(constant(0), "40")), Each(1.0));
  EXPECT_THAT(values_after(distance_of(constant(1), "40")), Each(-1.0));
  EXPECT_THAT(values_after(distance_of(constant(1), "40", "false")), Each(0.0));
}

TEST(Channels, AStepIsDoneToThoseItNames) {
  const Preprocess preprocess =
      steps_on({step_on("clip", {{"min", "0"}, {"max", "100"}}, {0, 2}), step_on("distance", {}, {1})});
  EXPECT_TRUE(preprocess.any(Role::kImage, 0) && preprocess.any(Role::kImage, 1) && preprocess.any(Role::kImage, 2));
  EXPECT_FALSE(preprocess.any(Role::kImage, 3) || preprocess.any(Role::kLabel, 0) || preprocess.any(Role::kMask, 1));
  EXPECT_FALSE(preprocess.rewrites_voxels(Role::kImage, 3));
  for (const int64_t channel : {0, 1, 2, 3}) {
    Volume volume = make_volume<int16_t>({2, 3, 4}, [](int64_t i) { return i * 10; });
    EXPECT_EQ(preprocess.plan(volume.info, Role::kImage, channel).dtype, channel == 1 ? DType::kInt8 : DType::kInt16);
    preprocess.apply(volume, Role::kImage, channel);
    const double last = values_after(volume).back();
    if (channel == 1)
      EXPECT_NEAR(last, -std::sqrt(14.0) / 50, 0.5 / 127) << "voxel 0 alone is outside: 1, 2 and 3 steps away";
    else
      EXPECT_EQ(last, channel == 3 ? 230 : 100);
  }
}

TEST(Channels, TheCacheKeyTellsThemApart) {
  const PreprocessStep everywhere = step_on("clip", {{"max", "9"}});
  const Preprocess preprocess = steps_on({step_on("clip", {{"max", "9"}}, {1}), step_on("distance", {}, {1, 2})});
  const std::string clipped = steps_on({everywhere}).description(Role::kImage, 5);
  EXPECT_EQ(preprocess.description(Role::kImage, 0), "");
  EXPECT_THAT(preprocess.description(Role::kImage, 1), AllOf(HasSubstr(clipped), HasSubstr("distance")));
  EXPECT_THAT(preprocess.description(Role::kImage, 2), testing::StartsWith("distance"));
  EXPECT_EQ(steps_on({step_on("clip", {{"max", "9"}}, {5})}).description(Role::kImage, 5), clipped)
      << "what is kept on disk serves both";
}

TEST(Channels, WrongOnesAreNamed) {
  EXPECT_THAT(error_of([] { steps_on({step_on("clip", {}, {-1})}); }),
              AllOf(HasSubstr("data.preprocess: clip: channels"), HasSubstr("-1")));
  EXPECT_THAT(error_of([] { steps_on({step_on("resample", {{"factor", "2"}}, {0})}); }),
              AllOf(HasSubstr("resample"), HasSubstr("leave out its channels")));
  const Preprocess preprocess = steps_on({step_on("distance", {}, {0, 2})});
  EXPECT_THAT(error_of([&] { preprocess.require_channels(2); }),
              AllOf(HasSubstr("data.preprocess: distance: channels names 2"), HasSubstr("2 image channel(s)")));
  EXPECT_EQ(error_of([&] { preprocess.require_channels(3); }), "");
}

TEST(Channels, CountOverAllFilesOfACase) {
  const TemporaryFolder folder;
  VolumeInfo info;
  info.extent = {2, 3, 4};
  info.channels = 2;
  Volume pair = allocate_volume(info);
  std::fill_n(pair.data.as<uint8_t>(), info.voxels(), uint8_t{0});
  write_volume(folder / "pair.nii", pair);
  write_volume(folder / "one.nii", make_volume<uint8_t>(info.extent, [](int64_t i) { return i == 0; }));
  DataOptions data;
  data.preprocess = {step_on("distance", {}, {2})};
  const Case item{.id = "a",
                  .group = "a",
                  .images = {folder / "pair.nii", folder / "one.nii"},
                  .label = "",
                  .mask = "",
                  .split = ""};
  const CaseUnits units = open_case(item, data, Preprocess(data));
  ASSERT_EQ(units.images.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(units.images[i].changed, i == 2);
    EXPECT_EQ(units.images[i].image_channel, static_cast<int64_t>(i));
  }
  EXPECT_EQ(units.images[2].stored.dtype, DType::kInt8);
  data.preprocess = {step_on("distance", {}, {3})};
  EXPECT_THAT(error_of([&] { open_case(item, data, Preprocess(data)); }), HasSubstr("names 3"));
}

}  // namespace
}  // namespace vox
