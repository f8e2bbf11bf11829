// What a patch does not show may be anything: what a target says must be so in every world that looks alike in the
// patch. Where it says that it does not know must follow from what is hidden alone. Worlds are measured by brute force.
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

constexpr int64_t kMargin = 2, kLimit = 3;
constexpr Extent3 kPatch{5, 6, 7}, kWorld{5 + 2 * kMargin, 6 + 2 * kMargin, 7 + 2 * kMargin};
constexpr Spacing3 kSpacing{2, 1, 0.5};
constexpr uint8_t kIgnored = 9;

struct World {
  std::vector<uint8_t> labels = std::vector<uint8_t>(static_cast<size_t>(kWorld.voxels()));

  static size_t place(const Extent3& p) { return static_cast<size_t>((p.z * kWorld.y + p.y) * kWorld.x + p.x); }
  uint8_t at(const Extent3& p) const { return labels[place(p)]; }
  static bool is_shown(const Extent3& p) {
    return std::min({p.z, p.y, p.x}) >= kMargin && p.z < kMargin + kPatch.z && p.y < kMargin + kPatch.y &&
           p.x < kMargin + kPatch.x;
  }

  template <class IsThere>
  double distance_to(const Extent3& from, const Spacing3& mm, const IsThere& is_there) const {  // within the patch
    double nearest = 1e4;
    for (int64_t z = kMargin; z < kMargin + kPatch.z; ++z)
      for (int64_t y = kMargin; y < kMargin + kPatch.y; ++y)
        for (int64_t x = kMargin; x < kMargin + kPatch.x; ++x)
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

constexpr std::array<Extent3, 2> kBack{{{-1, 0, 0}, {0, -2, -1}}};  // of affinities

using Measure = std::function<std::vector<double>(const World&, const Extent3&)>;  // all channels of a voxel

std::vector<double> affinities(const World& world, const Extent3& p) {
  std::vector<double> values;
  for (const Extent3& back : kBack) values.push_back(world.at(p) != 0 && world.at(p) == world.at(moved(p, back)));
  return values;
}

Measure boundary(bool inner, bool outer) {
  return [=](const World& world, const Extent3& p) {
    bool differs = false;
    for (const Extent3& by : kFaces) differs |= World::is_shown(moved(p, by)) && world.at(moved(p, by)) != world.at(p);
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
  for (size_t face = 0; face < kFaces.size(); ++face) {
    const Extent3 beside = moved(p, kFaces[face]);
    const double far = world.distance_to(World::is_shown(beside) ? beside : p, {},
                                         [&](uint8_t label) { return label != world.at(p); });
    slope[face / 2] += (face % 2 == 0 ? -1 : 1) * far;
  }
  const double length = std::hypot(slope[0], slope[1], slope[2]);
  for (double& one : slope) one = length > 0 ? one / length : 0;
  return slope;
}

struct Shown {  // a patch, and which of its voxels are hidden by the ignore label or the mask
  std::vector<uint8_t> labels, mask;
  bool hides(size_t i) const { return labels[i] == kIgnored || mask[i] == 0; }
  bool sees(const Extent3& p) const {
    const bool there = World::is_shown(moved(p, {kMargin, kMargin, kMargin}));
    return there && !hides(static_cast<size_t>((p.z * kPatch.y + p.y) * kPatch.x + p.x));
  }
  LabelPatch patch() const { return {labels.data(), kPatch, kSpacing, kIgnored, mask.data()}; }
};

using Knows = std::function<bool(const Shown&, const Extent3&, size_t channel)>;

bool sees_both_ends(const Shown& shown, const Extent3& p, size_t channel) {
  return shown.sees(p) && shown.sees(moved(p, kBack[channel]));
}

bool sees_neighbours(const Shown& shown, const Extent3& p, size_t) {
  const auto hides = [&](const Extent3& q) {
    return World::is_shown(moved(q, {kMargin, kMargin, kMargin})) && !shown.sees(q);
  };
  return shown.sees(p) &&
         std::none_of(kFaces.begin(), kFaces.end(), [&](const Extent3& by) { return hides(moved(p, by)); });
}

Knows sees_up_to_the_limit(const Spacing3& mm) {
  return [=](const Shown& shown, const Extent3& p, size_t) {
    bool all = true;
    for (int64_t z = 0; z < kPatch.z; ++z)
      for (int64_t y = 0; y < kPatch.y; ++y)
        for (int64_t x = 0; x < kPatch.x; ++x)
          all &= shown.sees({z, y, x}) ||
                 std::hypot(static_cast<double>(z - p.z) * mm.z_mm, static_cast<double>(y - p.y) * mm.y_mm,
                            static_cast<double>(x - p.x) * mm.x_mm) > kLimit - 1e-9;
    return all;
  };
}

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
  Knows knows;  // empty: not asked
};

Tree numbers(const std::vector<int>& values) {
  std::vector<Tree> items;
  for (const int value : values) items.push_back(scalar_tree(std::to_string(value)));
  return list_tree(items);
}

std::vector<Subject> subjects() {
  return {{"affinity", {{"offsets", list_tree({numbers({1, 0, 0}), numbers({0, 2, 1})})}}, affinities, sees_both_ends},
          {"boundary", {}, boundary(true, true), sees_neighbours},
          {"boundary", {{"side", scalar_tree("inner")}}, boundary(true, false), sees_neighbours},
          {"boundary", {{"side", scalar_tree("outer")}}, boundary(false, true), sees_neighbours},
          {"signed_distance", {{"limit", scalar_tree("3")}}, signed_distance({}), sees_up_to_the_limit({})},
          {"signed_distance",
           {{"limit", scalar_tree("3")}, {"spacing", scalar_tree("true")}},
           signed_distance(kSpacing),
           sees_up_to_the_limit(kSpacing)},
          {"flow", {}, flow, {}}};
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
      for (const std::vector<double>& one : said)
        EXPECT_NEAR(value.value_or(one[c]), one[c], 1e-5) << subject.kind << " " << c << " at " << place;
      if (!subject.knows) continue;
      EXPECT_EQ(value.has_value(), subject.knows(shown, place, c)) << subject.kind << " " << c << " at " << place;
    }
  }
  return known;
}

TEST(Hidden, TargetsSayWhatEveryWorldSaysAndWhereFollowsFromWhatIsHidden) {
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

TEST(Hidden, NothingLiesBesideAPatchOneVoxelThick) {
  const std::vector<uint8_t> labels{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1};
  const LabelPatch patch{labels.data(), {1, 3, 4}, {}, -1, nullptr};
  std::vector<int8_t> boundary(labels.size());
  make_target({"boundary", "boundary", {}})->make(patch, reinterpret_cast<std::byte*>(boundary.data()));
  EXPECT_EQ(boundary, (std::vector<int8_t>{0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0}));
  std::vector<float> flow(3 * labels.size());
  make_target({"flow", "flow", {}})->make(patch, reinterpret_cast<std::byte*>(flow.data()));
  for (size_t i = 0; i < flow.size(); ++i) EXPECT_EQ(flow[i], i >= 24 && labels[i - 24] == 1 ? 1 : 0) << i;
}

}  // namespace
}  // namespace vox
