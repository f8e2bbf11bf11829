// Masks for the GPU tests of thinning and Betti numbers: extents from 1 on that no word divides, contents from empty to
// full, noise, balls, sheets and boxes with holes, on the edge of the volume too.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <vector>

#include "base/cuda_test_effort.h"
#include "base/random.h"
#include "base/shape.h"
#include "kernels/bench_sheets.h"
#include "kernels/cuda_test_memory.h"

namespace vox::cuda {

struct TestMasks {
  int64_t volumes = 1;
  Extent3 extent;
  std::vector<uint8_t> voxels;  // 0, or any other value
};

inline bool in_test_mask(const Extent3& at, const Extent3& extent, uint64_t kind, const std::array<double, 4>& drawn,
                         Random& random) {
  constexpr double kShares[] = {0, 1, 0.02, 0.2, 0.5, 0.8, 0.98};
  if (kind < 7) return random.chance(kShares[kind]);
  const auto z = static_cast<double>(at.z), y = static_cast<double>(at.y), x = static_cast<double>(at.x);
  const auto [a, b, c, width] = drawn;
  if (kind == 7)
    return std::abs(std::sin(z * a + y * 0.1) + std::sin(y * b + x * 0.2) + std::sin(x * c - z * 0.1)) < width;
  if (kind == 8) {  // a ball, hollow or not
    const double dz = z - a * static_cast<double>(extent.z), dy = y - b * static_cast<double>(extent.y),
                 dx = x - c * static_cast<double>(extent.x), distance = std::sqrt(dz * dz + dy * dy + dx * dx);
    return distance < 30 * width && (a < 0.5 || distance > 10 * width);
  }
  if (kind == 9) return std::abs(z * a + y * b - x * c) < 4 * width;  // a flat sheet
  if (kind == 10) return at.z == 0 || at.y == 0 || at.x + 1 == extent.x;
  return at.z % 7 < 5 && at.y % 6 < 4 && at.x % 9 < 8 && !random.chance(0.05);
}

inline TestMasks random_test_masks(uint64_t seed, uint64_t sample, int64_t longest) {
  Random random(seed, sample, 0);
  const int64_t most = side(longest);
  const auto length = [&] { return random.chance(0.1) ? 1 : 1 + static_cast<int64_t>(random.below(most)); };
  TestMasks masks{1 + static_cast<int64_t>(random.below(3)), {length(), length(), length()}, {}};
  if (random.chance(0.2)) masks.extent.x = 32 * (1 + static_cast<int64_t>(random.below(3)));
  for (int64_t volume = 0; volume < masks.volumes; ++volume) {
    const auto kind = static_cast<uint64_t>(random.below(12));
    const std::array<double, 4> drawn{random.uniform(0, 1), random.uniform(0, 1), random.uniform(0, 1),
                                      random.uniform(0.1, 0.6)};
    for (int64_t i = 0; i < masks.extent.voxels(); ++i) {
      const Extent3 at{i / (masks.extent.y * masks.extent.x), i / masks.extent.x % masks.extent.y, i % masks.extent.x};
      masks.voxels.push_back(in_test_mask(at, masks.extent, kind, drawn, random) ? static_cast<uint8_t>(1 + i % 255)
                                                                                 : uint8_t{0});
    }
  }
  return masks;
}

inline TestMasks two_volumes_of_sheets() {
  TestMasks masks{2, kSheetsExtent, curved_sheets()};
  masks.voxels.insert(masks.voxels.end(), masks.voxels.begin(), masks.voxels.end());
  std::reverse(masks.voxels.begin(), masks.voxels.begin() + static_cast<int64_t>(masks.voxels.size() / 2));
  return masks;
}

inline at::Tensor on_gpu(const TestMasks& masks) {
  return device_bytes(masks.voxels.data(), static_cast<int64_t>(masks.voxels.size()));
}

inline at::Tensor test_workspace(int64_t numbers) {  // of uint64, filled with what no kernel expects
  return at::full({std::max<int64_t>(numbers, 1)}, -6148914691236517206, at::TensorOptions(at::kCUDA).dtype(at::kLong));
}
inline uint64_t* workspace_numbers(const at::Tensor& workspace) {
  return static_cast<uint64_t*>(workspace.data_ptr());
}

inline double milliseconds_on_cpu(const std::function<void()>& work) {
  work();
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace vox::cuda
