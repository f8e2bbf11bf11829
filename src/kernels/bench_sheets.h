// What the benchmarks of components and thinning work on: thin curved sheets of 128^3.
#pragma once

#include <cmath>
#include <vector>

#include "base/shape.h"

namespace vox {

inline constexpr Extent3 kSheetsExtent{128, 128, 128};

inline std::vector<uint8_t> curved_sheets() {
  std::vector<uint8_t> mask(static_cast<size_t>(kSheetsExtent.voxels()));
  for (int64_t i = 0; i < kSheetsExtent.voxels(); ++i) {
    const double z = static_cast<double>(i / (128 * 128)), y = static_cast<double>(i / 128 % 128);
    const double x = static_cast<double>(i % 128);
    const double field = std::sin(z * 0.17 + y * 0.05) + std::sin(y * 0.13 + x * 0.07) + std::sin(x * 0.19 - z * 0.06);
    mask[static_cast<size_t>(i)] = std::abs(field) < 0.15;
  }
  return mask;
}

}  // namespace vox
