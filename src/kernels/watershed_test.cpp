#include "kernels/watershed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"

namespace vox {
namespace {

Extent3 random_small_extent(Random& random) {
  return {1 + random.below(4), 1 + random.below(6), 1 + random.below(7)};
}

// The same rule without a heap: of all voxels at the shore the lowest, then the earliest, is next. That the rule is the
// field's is shown against scikit-image through the program.
std::vector<uint32_t> flood_by_search(std::vector<uint32_t> labels, const std::vector<float>& height,
                                      const Extent3& extent) {
  std::vector<int64_t> shore;
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != 0) shore.push_back(static_cast<int64_t>(i));
  while (!shore.empty()) {
    const auto next = std::min_element(shore.begin(), shore.end(), [&](int64_t a, int64_t b) {
      return height[static_cast<size_t>(a)] < height[static_cast<size_t>(b)];
    });  // the first of equals, which came first
    const int64_t voxel = *next;
    shore.erase(next);
    const Extent3 at{voxel / (extent.y * extent.x), voxel / extent.x % extent.y, voxel % extent.x};
    for (const Extent3& step : {Extent3{-1, 0, 0}, Extent3{0, -1, 0}, Extent3{0, 0, -1}, Extent3{0, 0, 1},
                                Extent3{0, 1, 0}, Extent3{1, 0, 0}}) {
      const Extent3 to = at + step;
      if (to.z < 0 || to.y < 0 || to.x < 0 || to.z >= extent.z || to.y >= extent.y || to.x >= extent.x) continue;
      const int64_t there = (to.z * extent.y + to.y) * extent.x + to.x;
      if (labels[static_cast<size_t>(there)] != 0) continue;
      labels[static_cast<size_t>(there)] = labels[static_cast<size_t>(voxel)];
      shore.push_back(there);
    }
  }
  return labels;
}

TEST(Watershed, FloodsTheLowestVoxelFirstAndEqualOnesInOrder) {
  Random random(41, 0, 0);
  for (int trial = 0; trial < 200; ++trial) {
    const Extent3 extent = random_small_extent(random);
    std::vector<float> height(static_cast<size_t>(extent.voxels()));
    for (float& value : height)
      value = trial % 2 ? static_cast<float>(random.uniform(-1, 1)) : static_cast<float>(random.below(3));
    std::vector<uint32_t> seeds(height.size());
    seeds[static_cast<size_t>(random.below(extent.voxels()))] = 7;
    const auto other = static_cast<size_t>(random.below(extent.voxels()));
    seeds[other] = 9;
    height[other] = -2;  // no tie between seeds: theirs is nobody's order
    std::vector<uint32_t> labels = seeds;
    watershed_cpu(labels.data(), height.data(), nullptr, extent, Connectivity::kFaces);
    EXPECT_EQ(labels, flood_by_search(seeds, height, extent)) << "trial " << trial;
  }
}

TEST(Watershed, StaysInsideTheMask) {
  const Extent3 extent{1, 1, 5};
  const std::vector<float> height{0, 1, 2, 1, 0};
  const std::vector<uint8_t> mask{1, 1, 0, 1, 1};
  std::vector<uint32_t> labels{3, 0, 4, 0, 0};  // a seed outside the mask is none
  watershed_cpu(labels.data(), height.data(), mask.data(), extent, Connectivity::kCorners);
  EXPECT_EQ(labels, (std::vector<uint32_t>{3, 3, 0, 0, 0}));
}

// The definition, without any structure: clusters as numbers, exclusions as pairs of numbers.
std::vector<uint32_t> mutex_by_definition(const AffinityEdges& edges, const Extent3& extent) {
  struct Edge {
    float strength;
    int64_t a, b, number;
    bool attractive;
  };
  std::vector<Edge> all;
  const int64_t voxels = extent.voxels();
  for (size_t k = 0; k < edges.offsets.size(); ++k)
    for (int64_t i = 0; i < voxels; ++i) {
      const Extent3 at{i / (extent.y * extent.x), i / extent.x % extent.y, i % extent.x};
      const Extent3 to = at - edges.offsets[k];
      bool inside = true;
      for (int axis = 0; axis < 3; ++axis) inside = inside && to[axis] >= 0 && to[axis] < extent[axis];
      if (!inside) continue;
      const bool attractive = static_cast<int64_t>(k) < edges.attractive;
      const float value = edges.values[static_cast<int64_t>(k) * voxels + i];
      all.push_back({attractive ? value : 1 - value, i, (to.z * extent.y + to.y) * extent.x + to.x,
                     static_cast<int64_t>(k) * voxels + i, attractive});
    }
  std::stable_sort(all.begin(), all.end(), [](const Edge& a, const Edge& b) { return a.strength > b.strength; });
  std::vector<uint32_t> cluster(static_cast<size_t>(voxels));
  for (size_t i = 0; i < cluster.size(); ++i) cluster[i] = static_cast<uint32_t>(i);
  std::set<std::pair<uint32_t, uint32_t>> apart;
  for (const Edge& edge : all) {
    const uint32_t a = cluster[static_cast<size_t>(edge.a)], b = cluster[static_cast<size_t>(edge.b)];
    if (a == b || apart.contains({a, b})) continue;
    if (!edge.attractive) {
      apart.insert({a, b});
      apart.insert({b, a});
      continue;
    }
    for (uint32_t& c : cluster) c = c == b ? a : c;
    std::set<std::pair<uint32_t, uint32_t>> renamed;
    for (const auto& [p, q] : apart) renamed.insert({p == b ? a : p, q == b ? a : q});
    apart = renamed;
  }
  std::map<uint32_t, uint32_t> number;
  for (uint32_t& c : cluster) c = number.emplace(c, static_cast<uint32_t>(number.size() + 1)).first->second;
  return cluster;
}

TEST(MutexWatershed, JoinsAndKeepsApartAsDefined) {
  Random random(42, 0, 0);
  for (int trial = 0; trial < 150; ++trial) {
    const Extent3 extent = random_small_extent(random);
    AffinityEdges edges{nullptr, {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 2, 0}, {0, 0, 3}, {1, -1, 1}}};
    std::vector<float> values(edges.offsets.size() * static_cast<size_t>(extent.voxels()));
    // Quarters: many ties.
    for (float& value : values)
      value =
          trial % 2 ? static_cast<float>(random.uniform(0.05, 0.95)) : 0.2f * static_cast<float>(1 + random.below(4));
    edges.values = values.data();
    std::vector<uint32_t> labels(static_cast<size_t>(extent.voxels()));
    const int64_t count = mutex_watershed_cpu(labels.data(), edges, nullptr, extent);
    EXPECT_EQ(labels, mutex_by_definition(edges, extent)) << "trial " << trial;
    EXPECT_EQ(count, *std::max_element(labels.begin(), labels.end()));
  }
}

TEST(MutexWatershed, SplitsARowWhereALongEdgeSaysSo) {
  const Extent3 extent{1, 1, 4};
  // Attractive along x: 0-1 strong, 1-2 weak, 2-3 strong; repulsive at distance 3: 0 and 3 are two objects.
  const std::vector<float> values{0, 0.9f, 0.4f, 0.8f, 1, 1, 1, 0.1f};
  const AffinityEdges edges{values.data(), {{0, 0, 1}, {0, 0, 3}}, 1};
  std::vector<uint32_t> labels(4);
  EXPECT_EQ(mutex_watershed_cpu(labels.data(), edges, nullptr, extent), 2);
  EXPECT_EQ(labels, (std::vector<uint32_t>{1, 1, 2, 2}));
  const std::vector<uint8_t> mask{1, 0, 1, 1};
  EXPECT_EQ(mutex_watershed_cpu(labels.data(), edges, mask.data(), extent), 2);
  EXPECT_EQ(labels, (std::vector<uint32_t>{1, 0, 2, 2}));
}

}  // namespace
}  // namespace vox
