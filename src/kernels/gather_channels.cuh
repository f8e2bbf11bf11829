// Inside the gather of several channels: what a launch is given, and the tile of voxels that a block works on. Its
// values collect in shared memory, a plane a channel, as bits of bfloat16 or as float32.
#pragma once

#include <type_traits>

#include "kernels/cuda_device.cuh"
#include "kernels/gather_device.cuh"

namespace vox::cuda {

constexpr int kChannelThreads = 128;
constexpr int kMostChannels = 16;  // of a launch

struct Channel {
  const void* data;
  float scale, offset, pad_value;
  DType stored;
  bool scaled;
};

struct ChannelsTask {
  GatherTask shared;  // with the first channel's source and output
  int count;          // of channels
  int tile;           // voxels
  int plane;          // elements from one channel's values in the tile to the next one's
  int run_step;       // elements in the source from one voxel of a row to the next; 0: not the same everywhere
  Channel channels[kMostChannels];
};

struct TileRange {  // voxels of the block's rows
  int start, count;
};

template <class F>
__device__ void with_stored_type(DType stored, F&& function) {
  switch (stored) {
    case DType::kUInt8:
      return function(uint8_t{});
    case DType::kInt8:
      return function(int8_t{});
    case DType::kUInt16:
      return function(uint16_t{});
    case DType::kInt16:
      return function(int16_t{});
    case DType::kUInt32:
      return function(uint32_t{});
    case DType::kInt32:
      return function(int32_t{});
    case DType::kFloat32:
      return function(float{});
    case DType::kFloat64:
      return function(double{});
    case DType::kBFloat16:
      return;
  }
}

__device__ inline void put(float* to, float value) {
  *to = value;
}
__device__ inline void put(uint16_t* to, float value) {
  *to = to_bfloat16_bits(value);
}

// Seldom: not worth registers of its own.
__device__ __noinline__ inline int64_t index_beyond(int64_t index, int64_t size, Padding padding) {
  return padded_index(index, size, padding);
}

__device__ inline void position_in_row(const GatherTask& task, const BlockRows& rows, int row, int x,
                                       float (&position)[3]) {
  affine_position(task, rows.places[row], x, position);
  if (!task.grid) return;
  const int width = static_cast<int>(task.points[2]);
  const SplineWeights at_x = spline_weights(static_cast<float>(x), task.spacing[2], width);
#pragma unroll
  for (int axis = 0; axis < 3; ++axis)
    position[axis] = position[axis] + spline_value(at_x, rows.coefficients + (3 * row + axis) * width);
}

}  // namespace vox::cuda
