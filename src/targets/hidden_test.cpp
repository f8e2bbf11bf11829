// What a patch does not show may be anything: targets must say the same in every world that looks alike in the patch,
// or that they do not know. Worlds are measured by brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>

#include "base/drawn_seed.h"
#include "base/random.h"
#include "targets/target.h"

namespace vox {
namespace {

constexpr int64_t kMargin = 4, kLimit = 3;  // what lies beyond the limit of distances is not asked for
constexpr Extent3 kPatch{5, 6, 7}, kWorld{5 + 2 * kMargin, 6 + 2 * kMargin, 7 + 2 * kMargin};
constexpr Spacing3 kSpacing{2, 1, 0.5};
constexpr uint8_t kIgnored = 9;

struct World {
  std::vector<uint8_t> labels = std::vector<uint8_t>(static_cast<size_t>(kWorld.voxels()));

  static bool holds(const Extent3& p) {
    return p.z >= 0 && p.y >= 0 && p.x >= 0 && p.z < kWorld.z && p.y < kWorld.y && p.x < kWorld.x;
  }
  static size_t place(const Extent3& p) { return static_cast<size_t>((p.z * kWorld.y + p.y) * kWorld.x + p.x); }
  uint8_t at(const Extent3& p) const { return labels[place(p)]; }

  template <class IsThere>
  double distance_to(const Extent3& from, const Spacing3& mm, const IsThere& is_there) const {
    double nearest = INFINITY;
    for (int64_t z = 0; z < kWorld.z; ++z)
      for (int64_t y = 0; y < kWorld.y; ++y)
        for (int64_t x = 0; x < kWorld.x; ++x)
          if (is_there(at({z, y, x})))
            nearest = std::min(nearest, std::hypot(static_cast<double>(z - from.z) * mm.z_mm,
                                                   static_cast<double>(y - from.y) * mm.y_mm,
                                                   static_cast<double>(x - from.x) * mm.x_mm));
    return nearest;
  }
};

constexpr std::array<Extent3, 6> kFaces{{{-1, 0, 0}, {1, 0, 0}, {0, -1, 0}, {0, 1, 0}, {0, 0, -1}, {0, 0, 1}}};

Extent3 moved(const Extent3& p, const Extent3& by) {
  return {p.z + by.z, p.y + by.y, p.x + by.x};
}

using Measure = std::function<std::vector<double>(const World&, const Extent3&)>;  // all channels of a voxel

std::vector<double> affinities(const World& world, const Extent3& p) {
  std::vector<double> values;
  for (const Extent3& back : {Extent3{-1, 0, 0}, Extent3{0, -2, -1}})
    values.push_back(world.at(p) != 0 && world.at(p) == world.at(moved(p, back)));
  return values;
}

Measure boundary(bool inner, bool outer) {
  return [=](const World& world, const Extent3& p) {
    bool differs = false;
    for (const Extent3& by : kFaces) differs |= world.at(moved(p, by)) != world.at(p);
    return std::vector<double>{differs && (world.at(p) != 0 ? inner : outer) ? 1.0 : 0.0};
  };
}

Measure signed_distance(const Spacing3& mm) {
  return [=](const World& world, const Extent3& p) {
    const bool inside = world.at(p) != 0;
    const double far = world.distance_to(p, mm, [&](uint8_t label) { return (label != 0) != inside; });
    return std::vector<double>{std::min(1.0, far / kLimit) * (inside ? -1 : 1)};
  };
}

std::vector<double> flow(const World& world, const Extent3& p) {
  std::vector<double> slope(3);
  if (world.at(p) == 0) return slope;
  for (size_t face = 0; face < kFaces.size(); ++face)
    slope[face / 2] += (face % 2 == 0 ? -1 : 1) * world.distance_to(moved(p, kFaces[face]), {}, [&](uint8_t label) {
      return label != world.at(p);
    });
  const double length = std::hypot(slope[0], slope[1], slope[2]);
  for (double& one : slope) one = length > 0 ? one / length : 0;
  return slope;
}

struct Shown {  // a patch, and which of its voxels are hidden by the ignore label or the mask
  std::vector<uint8_t> labels, mask;
  bool hides(size_t i) const { return labels[i] == kIgnored || mask[i] == 0; }
  LabelPatch patch() const { return {labels.data(), kPatch, kSpacing, kIgnored, mask.data()}; }
};

Shown draw_patch(Random& random) {
  const auto voxels = static_cast<size_t>(kPatch.voxels());
  Shown shown{std::vector<uint8_t>(voxels), std::vector<uint8_t>(voxels, 1)};
  uint8_t blocks[8];
  for (uint8_t& block : blocks) block = static_cast<uint8_t>(random.below(3));
  size_t i = 0;
  for (int64_t z = 0; z < kPatch.z; ++z)
    for (int64_t y = 0; y < kPatch.y; ++y)
      for (int64_t x = 0; x < kPatch.x; ++x, ++i) {
        shown.labels[i] = random.chance(0.02) ? kIgnored : blocks[(z > 2) * 4 + (y > 2) * 2 + (x > 3)];
        shown.mask[i] = !random.chance(0.02);
      }
  return shown;
}

World world_around(const Shown& shown, const std::function<uint8_t()>& hidden) {
  World world;
  for (uint8_t& label : world.labels) label = hidden();
  size_t i = 0;
  for (int64_t z = 0; z < kPatch.z; ++z)
    for (int64_t y = 0; y < kPatch.y; ++y)
      for (int64_t x = 0; x < kPatch.x; ++x, ++i)
        if (!shown.hides(i)) world.labels[World::place({z + kMargin, y + kMargin, x + kMargin})] = shown.labels[i];
  return world;
}

std::vector<World> worlds_around(const Shown& shown, Random& random) {
  std::vector<World> worlds;
  for (uint8_t all = 0; all < 3; ++all) worlds.push_back(world_around(shown, [=] { return all; }));
  for (int i = 0; i < 3; ++i)
    worlds.push_back(world_around(shown, [&] { return static_cast<uint8_t>(random.below(3)); }));
  return worlds;
}

struct Subject {
  const char* kind;
  std::vector<std::pair<std::string, Tree>> params;
  Measure measure;
  bool says_all = true;  // that can be known
};

Tree numbers(const std::vector<int>& values) {
  std::vector<Tree> items;
  for (const int value : values) items.push_back(scalar_tree(std::to_string(value)));
  return list_tree(items);
}

std::vector<Subject> subjects() {
  return {
      {"affinity", {{"offsets", list_tree({numbers({1, 0, 0}), numbers({0, 2, 1})})}}, affinities},
      {"boundary", {}, boundary(true, true)},
      {"boundary", {{"side", scalar_tree("inner")}}, boundary(true, false)},
      {"boundary", {{"side", scalar_tree("outer")}}, boundary(false, true)},
      {"signed_distance", {{"limit", scalar_tree("3")}}, signed_distance({})},
      {"signed_distance", {{"limit", scalar_tree("3")}, {"spacing", scalar_tree("true")}}, signed_distance(kSpacing)},
      {"flow", {}, flow, false}};
}

std::vector<std::optional<double>> made(const Subject& subject, const LabelPatch& patch) {
  TargetOptions options{subject.kind, subject.kind, {}};
  options.params.kind = Tree::Kind::kMap;
  options.params.members = subject.params;
  const std::unique_ptr<Target> target = make_target(options);
  const auto count = static_cast<size_t>(target->channels() * kPatch.voxels());
  std::vector<std::byte> bytes(count * static_cast<size_t>(size_of(target->dtype())));
  target->make(patch, bytes.data());
  std::vector<std::optional<double>> values;
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    if (target->dtype() == DType::kFloat32)
      std::memcpy(&value, bytes.data() + 4 * i, 4);
    else if (static_cast<int8_t>(bytes[i]) < 0)
      value = kUnknownValue;
    else
      value = static_cast<float>(bytes[i]);
    values.push_back(std::isnan(value) ? std::nullopt : std::optional<double>(value));
  }
  return values;
}

// How many values are known.
int64_t compare(const Subject& subject, const Shown& shown, const std::vector<World>& worlds) {
  const std::vector<std::optional<double>> values = made(subject, shown.patch());
  const auto voxels = static_cast<size_t>(kPatch.voxels());
  int64_t known = 0;
  for (size_t i = 0; i < voxels; ++i) {
    const auto voxel = static_cast<int64_t>(i);
    const Extent3 place{voxel / kPatch.x / kPatch.y, voxel / kPatch.x % kPatch.y, voxel % kPatch.x};
    std::vector<std::vector<double>> said;
    for (const World& world : worlds) said.push_back(subject.measure(world, moved(place, {kMargin, kMargin, kMargin})));
    for (size_t c = 0; c < said[0].size(); ++c) {
      const std::optional<double> value = values[c * voxels + i];
      known += value.has_value();
      bool alike = true;
      for (const std::vector<double>& one : said) {
        alike &= std::abs(one[c] - said[0][c]) < 1e-9;
        EXPECT_NEAR(value.value_or(one[c]), one[c], 1e-5) << subject.kind << " " << c << " at " << place;
      }
      const bool wanted = subject.says_all && !shown.hides(i) ? alike : value.has_value();
      EXPECT_EQ(value.has_value(), wanted) << subject.kind << " " << c << " at " << place;
    }
  }
  return known;
}

TEST(Hidden, TargetsSayWhatEveryWorldSaysAndNothingElse) {
  const uint64_t seed = drawn_seed();
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed);
  for (const Subject& subject : subjects()) {
    int64_t known = 0;
    for (uint64_t round = 0; round < 6; ++round) {
      Random random(seed, round, 1);
      const Shown shown = draw_patch(random);
      known += compare(subject, shown, worlds_around(shown, random));
    }
    EXPECT_GT(known, 0) << subject.kind;
  }
}

}  // namespace
}  // namespace vox
