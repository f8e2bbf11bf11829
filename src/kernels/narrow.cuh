// What forward and backward of a transposed convolution to few channels share: a tile of 16 x 8 input voxels (x, y) of
// a plane, and for each voxel up to 64 products, one for each tap and output channel.
#pragma once

#include "kernels/channels_cuda.cuh"
#include "kernels/narrow_cuda.h"
#include "kernels/tensor_core.cuh"

namespace vox::cuda {

constexpr int kStride = 2, kMostKernel = 2 * kStride;
constexpr int kTileX = 16, kTileY = 8;  // a warp has a row of the tile
constexpr int kWidth = 64;              // products of a voxel
static_assert(kTileY * 32 == kWalkThreads);

struct NarrowTask {
  const void* x[2];
  const float *scale[2], *shift[2];
  float slope[2];
  int channels[2];
  int first_blocks;  // of 32 channels, of the first input
  int z, y, x_size;  // of the input
  int out_z, out_y, out_x, out;
  int kernel[3], padding[3];
  int owned_z, tiles_x, planes;  // planes: of a block
  int pitch;
  const void* weights;
  const float* bias;
};

inline NarrowTask task_of(const Narrow& layer) {
  NarrowTask task{};
  for (int i = 0; i < 2; ++i) {
    const NarrowInput& input = layer.input[i];
    task.x[i] = input.x;
    task.scale[i] = input.scale;
    task.shift[i] = input.shift;
    task.slope[i] = input.slope;
    task.channels[i] = static_cast<int>(input.channels);
  }
  task.first_blocks = task.channels[0] / kBlock;
  task.z = static_cast<int>(layer.z), task.y = static_cast<int>(layer.y), task.x_size = static_cast<int>(layer.x);
  const Shape5& to = layer.result;
  task.out_z = static_cast<int>(to.z), task.out_y = static_cast<int>(to.y), task.out_x = static_cast<int>(to.x);
  task.out = static_cast<int>(to.c);
  for (int a = 0; a < 3; ++a) task.kernel[a] = layer.kernel[a], task.padding[a] = layer.padding[a];
  task.pitch = static_cast<int>(layer.pitch);
  task.weights = layer.weights;
  task.bias = layer.bias;
  return task;
}

inline int tiles(int count, int tile) {
  return (count + tile - 1) / tile;
}

// Scale, then shift, of all input channels of the block's sample.
__device__ __forceinline__ void fill_waiting(const NarrowTask& task, int in, float* waiting) {
  for (int i = static_cast<int>(threadIdx.x); i < in; i += kWalkThreads) {
    const int part = i >= task.channels[0], own = i - part * task.channels[0];
    const int64_t at = int64_t{blockIdx.z} * task.channels[part] + own;
    waiting[i] = task.scale[part] ? task.scale[part][at] : 1;
    waiting[in + i] = task.shift[part] ? task.shift[part][at] : 0;
  }
}

__device__ __forceinline__ void activate(float (&values)[8], const float (&scale)[8], const float (&shift)[8],
                                         float slope) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float v = fmaf(values[i], scale[i], shift[i]);
    values[i] = v > 0 ? v : v * slope;
  }
}

}  // namespace vox::cuda
