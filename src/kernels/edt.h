// Exact Euclidean distance from each voxel of a mask to the nearest voxel outside it, on grids of any spacing.
// Beyond the edge of the volume nothing is known: it is no background. A volume without background has no nearest
// voxel: all of it lies at the limit, or at infinity where there is none.
#pragma once

#include <cstdint>
#include <limits>

#include "base/shape.h"

namespace vox {

class ThreadPool;

struct EdtOptions {
  Spacing3 spacing;
  double limit_mm = std::numeric_limits<double>::infinity();  // larger distances become this one; a small one is cheap
};

// mm^2; 0 where the mask is 0. `pool` null: this thread alone.
void edt_squared_cpu(float* squared_mm2, const uint8_t* mask, const Extent3& extent, const EdtOptions& options = {},
                     ThreadPool* pool = nullptr);

// mm; outside the mask the distance to it, inside the negative distance to the outside. Never 0: it is measured between
// centres of voxels, as scipy's distance_transform_edt of the complement minus that of the mask.
void signed_distance_cpu(float* mm, const uint8_t* mask, const Extent3& extent, const EdtOptions& options = {},
                         ThreadPool* pool = nullptr);

}  // namespace vox
