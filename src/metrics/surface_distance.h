// Distances between the surfaces of two masks. A surface is the mask's voxels with a face neighbour outside it (or
// outside the volume), as MONAI and scipy's binary_erosion have it; distances are between centres of voxels.
#pragma once

#include <cstdint>

#include "base/shape.h"

namespace vox {

class ThreadPool;

struct SurfaceDistances {
  double hd95 = 0;  // mm; the larger of the two directed 95th percentiles, interpolated linearly
  double asd = 0;   // mm; mean over the voxels of both surfaces (average symmetric surface distance)
};

// Both masks empty: zeros. One of them: nothing is near, and both values are the diagonal of the box.
SurfaceDistances surface_distances(const uint8_t* a, const uint8_t* b, const Extent3& extent, const Spacing3& spacing,
                                   ThreadPool& pool);
double diagonal_mm(const Extent3& extent, const Spacing3& spacing);

}  // namespace vox
