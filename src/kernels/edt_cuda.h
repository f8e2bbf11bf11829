// Exact Euclidean distances on the GPU, of a row of volumes [volumes, z, y, x] at once. The twins of kernels/edt.h: the
// same conventions, squares rounded the same way. Nothing is allocated: `out` holds what passes between the axes.
#pragma once

#include "kernels/cuda.h"
#include "kernels/edt.h"

namespace vox {

enum class DistanceOf : uint8_t {
  kInside,  // 0 where the mask is 0, else to the nearest voxel where it is
  kBoth,    // to the nearest voxel of the other kind, negative inside the mask
};

// mm; y and z at most 12000 voxels.
void edt_cuda(float* mm, const uint8_t* mask, int64_t volumes, const Extent3& extent, const EdtOptions& options,
              DistanceOf distance, cuda::Stream stream);
// mm^2, 0 where the mask is 0.
void edt_squared_cuda(float* squared_mm2, const uint8_t* mask, int64_t volumes, const Extent3& extent,
                      const EdtOptions& options, cuda::Stream stream);

}  // namespace vox
