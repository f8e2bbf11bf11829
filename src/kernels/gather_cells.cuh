// Inside the gather of several channels: linear interpolation. Where the eight taps of a voxel lie, and which of them
// are padding, is found once for all channels.
#pragma once

#include "kernels/gather_channels.cuh"

namespace vox::cuda {

constexpr int kCells = 2;  // of a thread at once

struct Cell {
  int first = 0;            // of the taps, elements from the channel's data
  int step[3] = {0, 0, 0};  // from the lower tap of an axis to the upper one
  float fraction[3] = {0, 0, 0};
  unsigned taps = 0;  // bit by bit, as mix_corners counts them: those that are no padding
};

__device__ inline Cell cell_at(const GatherTask& task, const BlockRows& rows, int voxel) {
  constexpr unsigned kUpper[3] = {0xf0, 0xcc, 0xaa}, kAll = 0xff;
  const GatherSource<void>& source = task.source;
  const int length = static_cast<int>(task.output.extent.x), row = voxel / length;
  float position[3];
  position_in_row(task, rows, row, voxel - row * length, position);
  Cell cell;
  cell.taps = kAll;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    const float base = floorf(position[axis]);
    cell.fraction[axis] = position[axis] - base;
    const int64_t size = source.size[axis];
    int64_t low = source.origin[axis] + static_cast<int64_t>(base), high = low + 1;
    if (low < 0 || low >= size) low = index_beyond(low, size, source.padding);
    if (cell.fraction[axis] == 0.0f)
      high = low;
    else if (high < 0 || high >= size)
      high = index_beyond(high, size, source.padding);
    if (low < 0) cell.taps &= kUpper[axis];
    if (high < 0) cell.taps &= kAll ^ kUpper[axis];
    const int stride = static_cast<int>(source.stride[axis]);
    const int64_t begin = source.begin[axis], lower = low < 0 ? high : low, upper = high < 0 ? low : high;
    cell.first += static_cast<int>(lower - begin) * stride;
    cell.step[axis] = static_cast<int>(upper - lower) * stride;
  }
  return cell;
}

// A tap that is padding, or has no weight, reads the one beside it in its stead: where any tap is in memory all reads
// are, and none waits for a question.
template <class T>
__device__ float cell_value(const Channel& channel, const Cell& cell) {
  constexpr unsigned kAll = 0xff;
  float corner[8] = {};
  if (cell.taps != 0) {
    const T* voxels = static_cast<const T*>(channel.data) + cell.first;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int place = (i & 4 ? cell.step[0] : 0) + (i & 2 ? cell.step[1] : 0) + (i & 1 ? cell.step[2] : 0);
      corner[i] = static_cast<float>(__ldg(voxels + place));
    }
    if (channel.scaled)
#pragma unroll
      for (int i = 0; i < 8; ++i) corner[i] = fmaf(channel.scale, corner[i], channel.offset);
  }
  if (cell.taps != kAll)
#pragma unroll
    for (int i = 0; i < 8; ++i) corner[i] = cell.taps >> i & 1u ? corner[i] : channel.pad_value;
  return mix_corners(corner, cell.fraction);
}

template <class Out>
__device__ void fill_linear(const ChannelsTask& task, const BlockRows& rows, const TileRange& range, Out* tile) {
  for (int begin = threadIdx.x; begin < range.count; begin += kCells * kChannelThreads) {
    Cell cells[kCells];
#pragma unroll
    for (int k = 0; k < kCells; ++k)
      if (begin + k * kChannelThreads < range.count)
        cells[k] = cell_at(task.shared, rows, range.start + begin + k * kChannelThreads);
    for (int c = 0; c < task.count; ++c) {
      const Channel& channel = task.channels[c];
      float value[kCells];
      with_stored_type(channel.stored, [&](auto typed) {
#pragma unroll
        for (int k = 0; k < kCells; ++k) value[k] = cell_value<decltype(typed)>(channel, cells[k]);
      });
#pragma unroll
      for (int k = 0; k < kCells; ++k)
        if (begin + k * kChannelThreads < range.count)
          put(tile + c * task.plane + begin + k * kChannelThreads, value[k]);
    }
  }
}

}  // namespace vox::cuda
