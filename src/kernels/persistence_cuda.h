// Cubical persistence on the GPU: the twin of kernels/persistence.h, with the same pairs in the same order. Of tunnels
// (dimension 1) it finds what does not cancel locally, few columns of a matrix, which this thread of the CPU reduces.
#pragma once

#include "kernels/cuda.h"
#include "kernels/persistence.h"

namespace vox {

// Volumes of fewer than 2^29 voxels, a border of one voxel around them included; for tunnels 2^28 and two voxels.
bool has_persistence_cuda(const Extent3& extent, int dimension);
// Bytes of workspace: about 40 a voxel, for tunnels 65.
int64_t persistence_workspace(const Extent3& extent, int dimension);
// A volume has no more pairs.
int64_t most_persistence_pairs(const Extent3& extent, int dimension);

// Of one volume. Returns how many `pairs` there are; those lie on the device, which has room for the most possible.
// Waits for the device several times, since how much is left to do is known only there. A NaN counts as a large value.
int64_t persistence_pairs_cuda(PersistencePair* pairs, const float* values, const Extent3& extent, int dimension,
                               const PersistenceOptions& options, void* workspace, cuda::Stream stream);

// Tunnels, on the host.
std::vector<PersistencePair> tunnel_pairs_cuda(const float* values, const Extent3& extent,
                                               const PersistenceOptions& options, void* workspace, cuda::Stream stream);

}  // namespace vox
