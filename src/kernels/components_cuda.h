// Connected components on the GPU, of a row of volumes [volumes, z, y, x]: the twin of kernels/components.h, with the
// same numbers in the same order.
#pragma once

#include "kernels/components.h"
#include "kernels/cuda.h"

namespace vox {

// uint32 numbers of workspace.
int64_t components_workspace(int64_t volumes, const Extent3& extent);

// `counts`, on the device: components of each volume; null: not wanted.
void components_cuda(uint32_t* labels, uint32_t* counts, const uint8_t* mask, int64_t volumes, const Extent3& extent,
                     Connectivity connectivity, uint32_t* workspace, cuda::Stream stream);
// Voxels are connected where they hold the same value other than 0.
void label_components_cuda(uint32_t* labels, uint32_t* counts, const uint32_t* values, int64_t volumes,
                           const Extent3& extent, Connectivity connectivity, uint32_t* workspace, cuda::Stream stream);

}  // namespace vox
