// Thinning on the GPU, of a row of volumes [volumes, z, y, x]: the twins of kernels/thinning.h, equal to them voxel for
// voxel. `out` may be `mask`. Both are repeated on the device until nothing changes, and can be captured in a graph.
#pragma once

#include "base/shape.h"
#include "kernels/cuda.h"

namespace vox {

// uint64 numbers of workspace; 0 where slices fit into shared memory.
int64_t thin_2d_workspace(int64_t volumes, const Extent3& extent);
int64_t thin_3d_workspace(int64_t volumes, const Extent3& extent);

void thin_2d_cuda(uint8_t* out, const uint8_t* mask, int64_t volumes, const Extent3& extent, uint64_t* workspace,
                  cuda::Stream stream);
void thin_3d_cuda(uint8_t* out, const uint8_t* mask, int64_t volumes, const Extent3& extent, uint64_t* workspace,
                  cuda::Stream stream);

}  // namespace vox
