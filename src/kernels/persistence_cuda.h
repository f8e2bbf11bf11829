// Cubical persistence on the GPU: the twin of kernels/persistence.h for components and cavities, with the same pairs in
// the same order. Tunnels (dimension 1) need a matrix reduction and are found by CPU threads alone.
#pragma once

#include "kernels/cuda.h"
#include "kernels/persistence.h"

namespace vox {

// Volumes of fewer than 2^29 voxels, a border of one voxel around them included.
bool has_persistence_cuda(const Extent3& extent, int dimension);
// Bytes of workspace: about 40 a voxel.
int64_t persistence_workspace(const Extent3& extent);
// A volume has no more pairs.
int64_t most_persistence_pairs(const Extent3& extent);

// Of one volume. Returns how many `pairs` there are; those lie on the device, which has room for the most possible.
// Waits for the device several times, since how much is left to do is known only there. A NaN counts as a large value.
int64_t persistence_pairs_cuda(PersistencePair* pairs, const float* values, const Extent3& extent, int dimension,
                               const PersistenceOptions& options, void* workspace, cuda::Stream stream);

}  // namespace vox
