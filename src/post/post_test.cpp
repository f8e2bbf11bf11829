// Truth: brute force by the definitions, on random masks. (scipy and scikit-image: tests/test_postprocess.py.)
#include "post/post.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "base/random.h"
#include "kernels/components.h"

namespace vox {
namespace {

using ::testing::HasSubstr;

PostOptions step(const std::string& name, const std::vector<std::pair<std::string, std::string>>& params = {}) {
  PostOptions options{.name = name, .params = {}};
  options.params.kind = Tree::Kind::kMap;
  for (const auto& [key, value] : params) options.params.members.emplace_back(key, scalar_tree(value));
  return options;
}

PostVolume random_mask(uint64_t seed, double density) {
  PostVolume volume{.extent = {7, 9, 11}, .probability = {}, .mask = {}};
  Random random(seed, 0, kSynthStream);
  for (int64_t i = 0; i < volume.extent.voxels(); ++i) volume.mask.push_back(random.chance(density));
  return volume;
}

// Everything within `radius` of a voxel of value `from` gets it.
std::vector<uint8_t> grown(const PostVolume& volume, uint8_t from, double radius) {
  const Extent3& e = volume.extent;
  std::vector<uint8_t> result = volume.mask;
  for (int64_t i = 0; i < e.voxels(); ++i) {
    for (int64_t j = 0; j < e.voxels(); ++j) {
      const int64_t dz = i / (e.y * e.x) - j / (e.y * e.x), dy = i / e.x % e.y - j / e.x % e.y, dx = i % e.x - j % e.x;
      const auto squared = static_cast<double>(dz * dz + dy * dy + dx * dx);
      if (volume.mask[static_cast<size_t>(j)] == from && squared <= radius * radius)
        result[static_cast<size_t>(i)] = from;
    }
  }
  return result;
}

TEST(Post, ClosingAndOpeningAreThoseOfABall) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const double radius = std::vector<double>{1, 1.5, 2}[seed % 3];
    PostVolume expected = random_mask(seed, 0.15), ours = expected;
    expected.mask = grown(expected, 1, radius);
    expected.mask = grown(expected, 0, radius);
    PostChain({step("close", {{"radius", std::to_string(radius)}})}).run(ours);
    EXPECT_EQ(ours.mask, expected.mask) << seed;
    expected = ours = random_mask(seed, 0.7);
    expected.mask = grown(expected, 0, radius);
    expected.mask = grown(expected, 1, radius);
    PostChain({step("open", {{"radius", std::to_string(radius)}})}).run(ours);
    EXPECT_EQ(ours.mask, expected.mask) << seed;
  }
}

TEST(Post, OneVoxelHolesThroughASheetArePluggedAndNothingElse) {
  PostVolume sheet{.extent = {5, 6, 7}, .probability = {}, .mask = std::vector<uint8_t>(5 * 6 * 7)};
  const auto at = [](int64_t z, int64_t y, int64_t x) { return static_cast<size_t>((z * 6 + y) * 7 + x); };
  for (int64_t y = 0; y < 6; ++y)
    for (int64_t x = 0; x < 7; ++x) sheet.mask[at(2, y, x)] = 1;
  const std::vector<uint8_t> whole = sheet.mask;
  sheet.mask[at(2, 3, 3)] = 0;
  PostChain({step("plug_holes")}).run(sheet);
  EXPECT_EQ(sheet.mask, whole);
}

TEST(Post, SheetsThatNearlyTouchAreNotGluedTogether) {
  PostVolume volume{.extent = {9, 12, 12}, .probability = {}, .mask = std::vector<uint8_t>(9 * 12 * 12)};
  const auto at = [](int64_t z, int64_t y, int64_t x) { return static_cast<size_t>((z * 12 + y) * 12 + x); };
  for (int64_t y = 0; y < 12; ++y)
    for (int64_t x = 0; x < 12; ++x) volume.mask[at(3, y, x)] = volume.mask[at(5, y, x)] = 1;
  volume.mask[at(3, 6, 6)] = volume.mask[at(3, 6, 7)] = 0;  // a hole of two voxels
  PostVolume glued = volume;
  PostChain({step("close_sheets", {{"radius", "2.5"}})}).run(volume);
  EXPECT_EQ(volume.mask[at(3, 6, 6)], 1);
  EXPECT_EQ(volume.mask[at(4, 3, 3)], 0);
  PostChain({step("close", {{"radius", "2.5"}})}).run(glued);
  EXPECT_EQ(glued.mask[at(4, 3, 3)], 1);
}

TEST(Post, ASheetWithinTheFoldOfAnotherStaysApart) {
  PostVolume volume{.extent = {9, 14, 8}, .probability = {}, .mask = std::vector<uint8_t>(9 * 14 * 8)};
  const auto at = [](int64_t z, int64_t y, int64_t x) { return static_cast<size_t>((z * 14 + y) * 8 + x); };
  for (int64_t x = 0; x < 8; ++x) {
    for (int64_t y = 0; y < 12; ++y) volume.mask[at(1, y, x)] = volume.mask[at(7, y, x)] = 1;
    for (int64_t z = 1; z < 8; ++z) volume.mask[at(z, 0, x)] = 1;
    for (int64_t y = 4; y < 14; ++y) volume.mask[at(4, y, x)] = 1;
  }
  PostChain({step("close_sheets", {{"radius", "3"}})}).run(volume);
  std::vector<uint32_t> pieces(volume.mask.size());
  EXPECT_EQ(components_cpu(pieces.data(), volume.mask.data(), volume.extent, Connectivity::kCorners), 2);
}

TEST(Post, StepsOnSheetsJoinNoTwoPieces) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    PostVolume volume = random_mask(seed, 0.03 + 0.01 * static_cast<double>(seed % 6));
    const size_t voxels = volume.mask.size();
    std::vector<uint32_t> before(voxels), after(voxels);
    components_cpu(before.data(), volume.mask.data(), volume.extent, Connectivity::kCorners);
    const char* const radius = seed % 2 ? "2.5" : "4";
    const std::vector<uint8_t> mask = volume.mask;
    PostChain({step("close_sheets", {{"radius", radius}}), step("patch_sheets", {{"min_voxels", "2"}})}).run(volume);
    const int64_t count = components_cpu(after.data(), volume.mask.data(), volume.extent, Connectivity::kCorners);
    std::vector<uint32_t> held(static_cast<size_t>(count) + 1);
    for (size_t i = 0; i < voxels; ++i) {
      EXPECT_GE(volume.mask[i], mask[i]) << seed;
      if (before[i] == 0) continue;
      uint32_t& piece = held[after[i]];
      EXPECT_TRUE(piece == 0 || piece == before[i]) << "seed " << seed << ": " << piece << " and " << before[i];
      piece = before[i];
    }
  }
}

// Each once took the time of a pass over the whole map, these together 14 s.
TEST(Post, ManyHolesTakeTheTimeOfTheirOwnColumns) {
  const Extent3 extent{1, 1500, 1500};
  PostVolume volume{.extent = extent, .probability = {}, .mask = std::vector<uint8_t>(1500 * 1500, 1)};
  const std::vector<uint8_t> whole = volume.mask;
  for (size_t y = 1; y + 1 < 1500; y += 2)
    for (size_t x = 1; x + 1 < 1500; x += 2) volume.mask[y * 1500 + x] = 0;
  const auto begin = std::chrono::steady_clock::now();
  PostChain({step("patch_sheets")}).run(volume);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(volume.mask, whole);
}

TEST(Post, AHoleWhoseRimHasNoHeightStays) {
  PostVolume volume{.extent = {8, 13, 13}, .probability = {}, .mask = std::vector<uint8_t>(8 * 13 * 13)};
  const auto at = [](int64_t z, int64_t y, int64_t x) { return static_cast<size_t>((z * 13 + y) * 13 + x); };
  for (int64_t y = 1; y < 12; ++y)
    for (int64_t x = 1; x < 12; ++x) volume.mask[at(3, y, x)] = 1;
  volume.mask[at(1, 1, 1)] = volume.mask[at(2, 1, 1)] = 1;  // the box begins below the sheet
  for (int64_t y = 5; y < 8; ++y)
    for (int64_t x = 5; x < 8; ++x) volume.mask[at(5, y, x)] = 1;
  volume.mask[at(4, 5, 5)] = 1;                             // a second storey around the hole, on one pillar
  volume.mask[at(3, 6, 6)] = volume.mask[at(5, 6, 6)] = 0;  // the hole through both
  const std::vector<uint8_t> before = volume.mask;
  PostChain({step("patch_sheets", {{"min_voxels", "10"}})}).run(volume);
  EXPECT_EQ(volume.mask, before);
}

TEST(Post, CutsLookAtTheForegroundWhereABoundaryComesWithIt) {
  const std::vector<float> foreground{0.95f, 0.95f, 0.1f, 0.95f, 0.95f, 0.95f, 0.4f};
  const std::vector<float> boundary{0.1f, 0.1f, 0.9f, 0.05f, 0.9f, 0.1f, 0.9f};
  for (const PostOptions& first : {step("threshold"), step("hysteresis", {{"low", "0.5"}})}) {
    PostVolume volume{.extent = {1, 1, 7}, .probability = foreground, .mask = {}, .channels = 2};
    volume.probability.insert(volume.probability.end(), boundary.begin(), boundary.end());
    PostChain({first}).run(volume);
    EXPECT_EQ(volume.mask, (std::vector<uint8_t>{1, 1, 0, 1, 1, 1, 0})) << first.name;
    PostChain({step("watershed")}).run(volume);
    EXPECT_EQ(volume.objects, (std::vector<uint32_t>{1, 1, 0, 2, 2, 3, 0})) << first.name;
  }
}

TEST(Post, TheLargestPiecesStay) {
  PostVolume volume{.extent = {1, 1, 12}, .probability = {}, .mask = {1, 1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1}};
  PostVolume two = volume;
  PostChain({step("keep_largest")}).run(volume);
  EXPECT_EQ(volume.mask, (std::vector<uint8_t>{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0}));  // the first of two equal ones
  PostChain({step("keep_largest", {{"count", "2"}})}).run(two);
  EXPECT_EQ(two.mask, (std::vector<uint8_t>{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}));
}

TEST(Post, WhatCannotWorkIsSaid) {
  const auto error_of = [](const std::vector<PostOptions>& steps, PostVolume volume) -> std::string {
    try {
      PostChain(steps).run(volume);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const PostVolume mask = random_mask(1, 0.5);
  EXPECT_THAT(error_of({step("fill_hole")}, mask), HasSubstr("Did you mean fill_holes"));
  EXPECT_THAT(error_of({step("fill_holes"), step("threshold")}, mask), HasSubstr("can only be the first"));
  EXPECT_THAT(error_of({step("threshold")}, mask), HasSubstr("holds labels"));
  EXPECT_THAT(error_of({step("fill_holes")}, {{1, 1, 2}, {0.5f, 0.2f}, {}}), HasSubstr("begin with threshold"));
  EXPECT_THAT(error_of({step("remove_small", {{"connectivity", "7"}})}, mask), HasSubstr("6, 18 or 26"));
  EXPECT_THAT(error_of({step("hysteresis", {{"low", "0.9"}})}, mask), HasSubstr("must not be above"));
}

TEST(Post, WhatCannotWorkIsSaidBeforeThereIsAVolume) {
  for (const char* name : {"hysteresis", "remove_small", "keep_largest", "watershed"})
    EXPECT_THROW(PostChain({step(name, {{"connectivity", "7"}})}), Error) << name;
  const PostChain mutex({step("mutex_watershed")});  // three offsets
  mutex.check(3, {10, 10, 10});
  EXPECT_THROW(mutex.check(2, {10, 10, 10}), Error);
  EXPECT_THROW(mutex.check(3, {2000, 1000, 1000}), Error);
  EXPECT_THROW(PostChain({step("watershed")}).check(2, {5000, 1000, 1000}), Error);
}

}  // namespace
}  // namespace vox
