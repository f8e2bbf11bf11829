// The soft skeleton of masks on the GPU: of values that are all 0 or 1 it is such a mask too, and takes a bit a voxel.
// The same as kernels/soft_skeleton_cuda.h gives, at a thirtieth of the memory traffic.
#pragma once

#include "kernels/soft_morphology_cuda.h"
#include "kernels/soft_skeleton.h"

namespace vox {

// Rows of words, 32 voxels each, the last one padded.
struct MaskRows {
  int64_t rows = 0;
  int z = 1, y = 1, x = 1, words = 1;  // words of a row
  int64_t count() const { return rows * words; }
};
MaskRows mask_rows(const VolumeBatch& batch);

// `skeleton` has mask_rows(batch).count() words, `workspace` twice as many.
void mask_skeleton_cuda(uint32_t* skeleton, const float* mask, const VolumeBatch& batch,
                        const SoftSkeletonOptions& options, uint32_t* workspace, cuda::Stream stream);

}  // namespace vox
