// Two ways from predicted boundaries to instances. Numbers of objects are the caller's seeds (seeded watershed) or
// count from 1 in the order of first voxels (mutex watershed); 0 is the background.
#pragma once

#include <cstdint>
#include <vector>

#include "base/shape.h"
#include "kernels/components.h"

namespace vox {

// Floods `height` from the seeds in `labels` (in and out), lowest voxels first, equal ones in the order in which the
// flood reached them (Beucher & Lantuejoul 1979; scikit-image's order). Voxels outside `mask` (null: none) stay 0.
// At most 2^32 - 1 voxels.
void watershed_cpu(uint32_t* labels, const float* height, const uint8_t* mask, const Extent3& extent,
                   Connectivity connectivity);

struct AffinityEdges {
  const float* values;           // [offsets, z, y, x]: 1 where a voxel and the one an offset before it belong together
  std::vector<Extent3> offsets;  // steps back, as the affinity target's; any sign
  int64_t attractive = 3;        // so many offsets, the first, join voxels; the others keep them apart
  Extent3 repulsive_stride{1, 1, 1};  // only voxels on this grid are kept apart from others: fewer edges
};

// Mutex watershed (Wolf et al. 2018): edges by falling strength, an affinity of an attractive edge, 1 - affinity of a
// repulsive one; an attractive edge joins two clusters unless a stronger repulsive edge said that they are two. NaN
// edges count for nothing. Returns the number of objects; voxels outside `mask` (null: none) are 0.
int64_t mutex_watershed_cpu(uint32_t* labels, const AffinityEdges& edges, const uint8_t* mask, const Extent3& extent);

}  // namespace vox
