// A patch as a scanner of lower resolution would have shown it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/shape.h"

namespace vox {

// For each of the fine voxels of an axis: the fine voxels that stand for the coarse ones to either side of it, and the
// share of the second.
struct CoarseTaps {
  std::vector<int32_t> low, high;
  std::vector<float> fraction;
};
CoarseTaps coarse_taps(int64_t fine, int64_t coarse);

// Takes the nearest voxels of a coarser grid of `coarse` voxels over the same region, and interpolates them linearly
// back to the patch's. Voxels are areas: both grids begin and end at the same borders.
void low_resolution_cpu(float* data, const Extent3& extent, const Extent3& coarse);

}  // namespace vox
