// Skeletons of masks by thinning: voxels are taken off the border, layer by layer, while what is left keeps its
// connections. Equal, voxel for voxel, to scikit-image's skeletonize. Masks: whatever is not 0 is foreground; the
// result holds 0 and 1. Nothing is inside beyond the volume. `out` may be `mask`; `pool` null: this thread alone.
#pragma once

#include <cstdint>

#include "base/shape.h"

namespace vox {

class ThreadPool;

// Each slice along z by itself (Zhang & Suen 1984): the medial surface of sheets that stand upright in their slices.
void thin_2d_cpu(uint8_t* out, const uint8_t* mask, const Extent3& extent, ThreadPool* pool = nullptr);

// In three dimensions (Lee, Kashyap & Chu 1994): curves are left, and solid bodies and sheets become curves, too.
// Candidates are found on the pool; they are taken away one after the other, since each decides about its neighbours.
void thin_3d_cpu(uint8_t* out, const uint8_t* mask, const Extent3& extent, ThreadPool* pool = nullptr);

}  // namespace vox
