// Erosion of maps of values on the GPU, forward and backward: the twin of kernels/soft_morphology.h, with the same
// rules where values are equal. Memory is contiguous and, where rows have a multiple of four voxels, aligned to 16
// bytes.
#pragma once

#include "kernels/cuda.h"
#include "kernels/soft_morphology.h"

namespace vox {

struct VolumeBatch {  // [volumes, z, y, x]
  int64_t volumes = 1;
  Extent3 extent;
};

// As many volumes as one call takes; of more, the caller makes several.
int64_t most_volumes_cuda(const Extent3& extent);

void soft_erode_cuda(float* out, const float* in, const VolumeBatch& batch, SoftErosion erosion, cuda::Stream stream);
// Two erosions by the cross at once.
void soft_erode_twice_cuda(float* out, const float* in, const VolumeBatch& batch, cuda::Stream stream);

enum class Gradient : uint8_t { kSet, kAdd };
void soft_erode_backward_cuda(float* grad_in, const float* grad_out, const float* in, const VolumeBatch& batch,
                              SoftErosion erosion, Gradient gradient, cuda::Stream stream);

}  // namespace vox
