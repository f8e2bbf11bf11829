// Cells and Betti numbers on the GPU, of a row of volumes [volumes, z, y, x]: the twins of kernels/betti.h.
#pragma once

#include "base/shape.h"
#include "kernels/cuda.h"

namespace vox {

// `cells`, on the device: vertices, edges, squares and cubes of each volume.
void count_cells_cuda(int64_t* cells, const uint8_t* mask, int64_t volumes, const Extent3& extent, cuda::Stream stream);

// uint64 numbers of workspace.
int64_t betti_workspace(int64_t volumes, const Extent3& extent);

// `numbers`, on the device: components, tunnels and cavities of each volume.
void betti_numbers_cuda(int64_t* numbers, const uint8_t* mask, int64_t volumes, const Extent3& extent,
                        uint64_t* workspace, cuda::Stream stream);

}  // namespace vox
