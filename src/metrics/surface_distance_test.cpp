#include "metrics/surface_distance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"

namespace vox {
namespace {

std::vector<Extent3> surface(const std::vector<uint8_t>& mask, const Extent3& extent) {
  const auto inside = [&](int64_t z, int64_t y, int64_t x) {
    return z >= 0 && y >= 0 && x >= 0 && z < extent.z && y < extent.y && x < extent.x &&
           mask[static_cast<size_t>((z * extent.y + y) * extent.x + x)] != 0;
  };
  std::vector<Extent3> voxels;
  for (int64_t z = 0; z < extent.z; ++z)
    for (int64_t y = 0; y < extent.y; ++y)
      for (int64_t x = 0; x < extent.x; ++x)
        if (inside(z, y, x) && !(inside(z - 1, y, x) && inside(z + 1, y, x) && inside(z, y - 1, x) &&
                                 inside(z, y + 1, x) && inside(z, y, x - 1) && inside(z, y, x + 1)))
          voxels.push_back({z, y, x});
  return voxels;
}

std::vector<double> directed(const std::vector<Extent3>& from, const std::vector<Extent3>& to,
                             const Spacing3& spacing) {
  std::vector<double> found;
  for (const Extent3& a : from) {
    double best = std::numeric_limits<double>::infinity();
    for (const Extent3& b : to) {
      double sum = 0;
      for (int axis = 0; axis < 3; ++axis) sum += std::pow(static_cast<double>(a[axis] - b[axis]) * spacing[axis], 2);
      best = std::min(best, std::sqrt(sum));
    }
    found.push_back(best);
  }
  std::sort(found.begin(), found.end());
  return found;
}

double percentile_95(const std::vector<double>& sorted) {
  const double place = 0.95 * static_cast<double>(sorted.size() - 1);
  const size_t low = static_cast<size_t>(place), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - static_cast<double>(low));
}

TEST(SurfaceDistances, AreThoseOfAllPairsOfSurfaceVoxels) {
  ThreadPool pool(2);
  for (uint64_t sample = 0; sample < 20; ++sample) {
    Random random(31, sample, 0);
    const Extent3 extent{2 + random.below(6), 2 + random.below(6), 2 + random.below(6)};
    const Spacing3 spacing{random.uniform(0.5, 3), random.uniform(0.5, 3), random.uniform(0.5, 3)};
    std::vector<uint8_t> a(static_cast<size_t>(extent.voxels())), b(a.size());
    for (uint8_t& voxel : a) voxel = random.chance(0.7);
    for (uint8_t& voxel : b) voxel = random.chance(0.1);
    a[0] = b[b.size() - 1] = 1;
    const std::vector<Extent3> on_a = surface(a, extent), on_b = surface(b, extent);
    const std::vector<double> ab = directed(on_a, on_b, spacing), ba = directed(on_b, on_a, spacing);
    double sum = 0;
    for (const double distance : ab) sum += distance;
    for (const double distance : ba) sum += distance;
    const SurfaceDistances found = surface_distances(a.data(), b.data(), extent, spacing, pool);
    EXPECT_NEAR(found.hd95, std::max(percentile_95(ab), percentile_95(ba)), 1e-5) << extent;
    EXPECT_NEAR(found.asd, sum / static_cast<double>(ab.size() + ba.size()), 1e-5) << extent;
  }
}

TEST(SurfaceDistances, OfOneEmptyMaskAreTheDiagonal) {
  ThreadPool pool(1);
  const std::vector<uint8_t> empty(60, 0), full(60, 1);
  EXPECT_EQ(surface_distances(empty.data(), empty.data(), {3, 4, 5}, {}, pool).hd95, 0);
  EXPECT_DOUBLE_EQ(surface_distances(empty.data(), full.data(), {3, 4, 5}, {}, pool).hd95, std::sqrt(50.0));
  EXPECT_DOUBLE_EQ(surface_distances(full.data(), empty.data(), {3, 4, 5}, {}, pool).asd, std::sqrt(50.0));
}

}  // namespace
}  // namespace vox
