#include "kernels/soft_skeleton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"

namespace vox {
namespace {

template <class T>
std::vector<T> random_values(const Extent3& extent, uint64_t sample) {
  Random random(71, sample, 0);
  std::vector<T> values(static_cast<size_t>(extent.voxels()));
  for (T& value : values) value = static_cast<T>(random.uniform(0.0, 1.0));
  return values;
}

// The largest or the least value near each voxel, as it is defined.
std::vector<double> filtered(const std::vector<double>& in, const Extent3& extent, bool largest, bool cube) {
  std::vector<double> out(in.size());
  for (int64_t i = 0; i < extent.voxels(); ++i) {
    const Extent3 at{i / (extent.y * extent.x), i / extent.x % extent.y, i % extent.x};
    double found = in[static_cast<size_t>(i)];
    for (int j = 0; j < 27; ++j) {
      const Extent3 off{j / 9 - 1, j / 3 % 3 - 1, j % 3 - 1}, near = at + off;
      const bool inside = Box3{{0, 0, 0}, extent}.contains({near, near + Extent3{1, 1, 1}});
      if (!inside || (!cube && std::abs(off.z) + std::abs(off.y) + std::abs(off.x) > 1)) continue;
      const double value = in[static_cast<size_t>((near.z * extent.y + near.y) * extent.x + near.x)];
      found = largest ? std::max(found, value) : std::min(found, value);
    }
    out[static_cast<size_t>(i)] = found;
  }
  return out;
}

std::vector<double> by_definition(std::vector<double> x, const Extent3& extent, const SoftSkeletonOptions& options) {
  const bool cube = options.erosion == SoftErosion::kCube;
  std::vector<double> skeleton(x.size(), 0);
  for (int level = 0; level < options.iterations + (cube ? 0 : 1); ++level) {
    const std::vector<double> eroded = filtered(x, extent, false, cube), opened = filtered(eroded, extent, true, true);
    for (size_t i = 0; i < x.size(); ++i) {
      const double delta = std::max(x[i] - opened[i], 0.0);
      skeleton[i] += std::max(delta - skeleton[i] * (cube ? 1 : delta), 0.0);
    }
    x = eroded;
  }
  return skeleton;
}

struct Case {
  Extent3 extent;
  SoftSkeletonOptions options;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const SoftErosion erosion : {SoftErosion::kCross, SoftErosion::kCube})
    for (const int iterations : {0, 1, 3})
      for (const Extent3& extent : {Extent3{4, 5, 6}, Extent3{1, 9, 6}, Extent3{11, 1, 1}, Extent3{1, 1, 1}})
        all.push_back({extent, {iterations, erosion}});
  return all;
}

TEST(SoftSkeleton, IsThatOfItsFormula) {
  for (const auto& [extent, options] : cases()) {
    const std::vector<double> values = random_values<double>(extent, 1);
    std::vector<double> found(values.size(), -1);
    soft_skeleton_cpu(found.data(), values.data(), extent, options);
    EXPECT_EQ(found, by_definition(values, extent, options)) << extent << " " << options.iterations;
  }
}

TEST(SoftSkeleton, GradientIsThatOfFiniteDifferences) {
  double largest = 0;
  for (const auto& [extent, options] : cases()) {
    std::vector<double> values = random_values<double>(extent, 2);
    const std::vector<double> weights = random_values<double>(extent, 3);
    std::vector<double> found(values.size(), -1);
    soft_skeleton_backward_cpu(found.data(), weights.data(), values.data(), extent, options);
    for (size_t i = 0; i < values.size(); ++i) {
      constexpr double kStep = 1e-7;  // values lie further apart, so that the formula is smooth between
      const auto weighted = [&](double value) {
        const double before = std::exchange(values[i], value);
        const std::vector<double> skeleton = by_definition(values, extent, options);
        values[i] = before;
        double sum = 0;
        for (size_t j = 0; j < skeleton.size(); ++j) sum += weights[j] * skeleton[j];
        return sum;
      };
      const double slope = (weighted(values[i] + kStep) - weighted(values[i] - kStep)) / (2 * kStep);
      ASSERT_NEAR(found[i], slope, 1e-6) << extent << " " << options.iterations << " voxel " << i;
      largest = std::max(largest, std::abs(slope));
    }
  }
  EXPECT_GT(largest, 0.1);  // else the cases show nothing
}

TEST(SoftSkeleton, ThreadsDoNotChangeABit) {
  ThreadPool pool(3);
  const Extent3 extent{21, 14, 33};
  const std::vector<float> values = random_values<float>(extent, 4), weights = random_values<float>(extent, 5);
  for (const SoftErosion erosion : {SoftErosion::kCross, SoftErosion::kCube}) {
    const SoftSkeletonOptions options{4, erosion};
    std::vector<float> alone(values.size()), shared(values.size());
    soft_skeleton_cpu(alone.data(), values.data(), extent, options);
    soft_skeleton_cpu(shared.data(), values.data(), extent, options, &pool);
    EXPECT_EQ(alone, shared);
    soft_skeleton_backward_cpu(alone.data(), weights.data(), values.data(), extent, options);
    soft_skeleton_backward_cpu(shared.data(), weights.data(), values.data(), extent, options, &pool);
    EXPECT_EQ(alone, shared);
  }
}

// A flat map has only ties: gradients are shared, none is lost or doubled.
TEST(SoftMorphology, ErosionOfAFlatMapKeepsTheSumOfGradients) {
  const Extent3 extent{4, 5, 6};
  const std::vector<double> flat(120, 0.5), weights = random_values<double>(extent, 6);
  for (const SoftErosion erosion : {SoftErosion::kCross, SoftErosion::kCube}) {
    std::vector<double> found(flat.size(), 0);
    soft_erode_backward_cpu(found.data(), weights.data(), flat.data(), extent, erosion, 2.0);
    double sum = 0, expected = 0;
    for (const double value : found) sum += value;
    for (const double value : weights) expected += 2 * value;
    EXPECT_NEAR(sum, expected, 1e-12);
  }
}

}  // namespace
}  // namespace vox
