#include "kernels/edt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"

namespace vox {
namespace {

using Mask = std::vector<uint8_t>;

Mask random_mask(const Extent3& extent, double foreground, Random& random) {
  Mask mask(static_cast<size_t>(extent.voxels()));
  for (uint8_t& voxel : mask) voxel = random.chance(foreground) ? static_cast<uint8_t>(1 + random.below(255)) : 0;
  return mask;
}

// By definition: every pair of voxels.
std::vector<double> brute_force(const Mask& mask, const Extent3& extent, const EdtOptions& options) {
  std::vector<double> squared(mask.size(), 0);
  const auto place = [&](int64_t i) {
    return Extent3{i / (extent.y * extent.x), i / extent.x % extent.y, i % extent.x};
  };
  for (int64_t i = 0; i < extent.voxels(); ++i) {
    if (mask[static_cast<size_t>(i)] == 0) continue;
    double best = options.limit_mm * options.limit_mm;
    for (int64_t j = 0; j < extent.voxels(); ++j) {
      if (mask[static_cast<size_t>(j)] != 0) continue;
      double sum = 0;
      for (int axis = 0; axis < 3; ++axis) {
        const double step = static_cast<double>(place(i)[axis] - place(j)[axis]) * options.spacing[axis];
        sum += step * step;
      }
      best = std::min(best, sum);
    }
    squared[static_cast<size_t>(i)] = best;
  }
  return squared;
}

void expect_equal(const std::vector<float>& found, const std::vector<double>& expected, const Extent3& extent) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isinf(expected[i]))
      ASSERT_TRUE(std::isinf(found[i])) << i << " of " << extent;
    else  // three float32 roundings
      ASSERT_NEAR(found[i], expected[i], 2e-7 * 3 * expected[i]) << i << " of " << extent;
  }
}

TEST(Edt, MatchesBruteForceOnRandomShapesSpacingsAndContents) {
  ThreadPool pool(2);
  for (uint64_t sample = 0; sample < 60; ++sample) {
    Random random(11, sample, 0);
    const Extent3 extent{1 + random.below(9), 1 + random.below(12), 1 + random.below(40)};
    EdtOptions options;
    if (random.chance(0.7)) options.spacing = {random.uniform(0.2, 4), random.uniform(0.2, 4), random.uniform(0.2, 4)};
    if (random.chance(0.3)) options.limit_mm = random.uniform(0.5, 6);
    const Mask mask =
        random_mask(extent, std::vector{0.3, 0.9, 0.99, 1.0}[static_cast<size_t>(random.below(4))], random);
    std::vector<float> squared(mask.size());
    edt_squared_cpu(squared.data(), mask.data(), extent, options, random.chance(0.5) ? &pool : nullptr);
    expect_equal(squared, brute_force(mask, extent, options), extent);
  }
}

// One background voxel far away: the search gives up and envelopes take over, along y and along z.
TEST(Edt, LongDistancesAreExact) {
  for (const Extent3& extent : {Extent3{3, 300, 20}, Extent3{300, 3, 20}, Extent3{200, 190, 17}}) {
    Mask mask(static_cast<size_t>(extent.voxels()), 1);
    Random random(12, static_cast<uint64_t>(extent.y), 0);
    std::vector<Extent3> holes;
    for (int hole = 0; hole < 3; ++hole) {
      const Extent3 at{random.below(extent.z) / 4, random.below(extent.y) / 4, random.below(extent.x)};
      mask[static_cast<size_t>((at.z * extent.y + at.y) * extent.x + at.x)] = 0;
      holes.push_back(at);
    }
    std::vector<float> squared(mask.size());
    edt_squared_cpu(squared.data(), mask.data(), extent);
    for (int64_t i = 0; i < extent.voxels(); ++i) {
      const Extent3 at{i / (extent.y * extent.x), i / extent.x % extent.y, i % extent.x};
      int64_t best = std::numeric_limits<int64_t>::max();
      for (const Extent3& hole : holes) {
        const Extent3 step = at - hole;
        best = std::min(best, step.z * step.z + step.y * step.y + step.x * step.x);
      }
      ASSERT_EQ(squared[static_cast<size_t>(i)], static_cast<float>(best)) << i << " of " << extent;
    }
  }
}

TEST(Edt, SignedDistanceIsPositiveOutsideAndNegativeInside) {
  Random random(13, 0, 0);
  const Extent3 extent{6, 7, 21};
  const EdtOptions options{.spacing = {2, 1, 0.5}};
  const Mask mask = random_mask(extent, 0.6, random);
  Mask complement(mask.size());
  for (size_t i = 0; i < mask.size(); ++i) complement[i] = mask[i] == 0;
  const std::vector<double> inside = brute_force(mask, extent, options),
                            outside = brute_force(complement, extent, options);
  std::vector<float> found(mask.size());
  signed_distance_cpu(found.data(), mask.data(), extent, options);
  for (size_t i = 0; i < mask.size(); ++i)
    ASSERT_NEAR(found[i], std::sqrt(outside[i]) - std::sqrt(inside[i]), 1e-6) << i;
}

}  // namespace
}  // namespace vox
