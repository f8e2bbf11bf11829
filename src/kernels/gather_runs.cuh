// Inside the gather of several channels: output voxels that take one source voxel each. A thread takes eight neighbours
// of a channel at once; where they are neighbours in memory too, as whole words.
#pragma once

#include "kernels/gather_channels.cuh"

namespace vox::cuda {

constexpr int kRun = 8;

struct Run {
  int at[kRun];      // elements from the channel's data; -1: padding, or beyond the tile
  bool has_padding;  // any
  int step;          // 1, -1: they lie side by side in memory, in this order; 0: they do not
};

struct NearestPlace {
  int at;       // -1: padding
  bool inside;  // without a padding rule
};

__device__ inline NearestPlace nearest_place(const GatherTask& task, const BlockRows& rows, int row, int x) {
  const GatherSource<void>& source = task.source;
  float position[3];
  position_in_row(task, rows, row, x, position);
  NearestPlace place{0, true};
  bool is_padding = false;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    int64_t index = source.origin[axis] + static_cast<int64_t>(floorf(position[axis] + 0.5f));
    if (index < 0 || index >= source.size[axis]) {
      place.inside = false;
      index = index_beyond(index, source.size[axis], source.padding);
    }
    is_padding = is_padding || index < 0;
    place.at += static_cast<int>(index - source.begin[axis]) * static_cast<int>(source.stride[axis]);
  }
  if (is_padding) place.at = -1;
  return place;
}

__device__ inline void note_order(Run& run) {
  run.has_padding = false;
  const int step = run.at[1] - run.at[0];
  bool even = step == 1 || step == -1;
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    run.has_padding = run.has_padding || run.at[j] < 0;
    even = even && run.at[j] == run.at[0] + j * step;
  }
  run.step = even && !run.has_padding ? step : 0;
}

// Voxels from `voxel` on, of which the block has `end`.
__device__ inline Run run_at(const ChannelsTask& task, const BlockRows& rows, int voxel, int end) {
  Run run;
  const int length = static_cast<int>(task.shared.output.extent.x);
  int row = voxel / length, x = voxel - row * length;
  if (task.run_step != 0 && x + kRun <= length && voxel + kRun <= end) {
    const NearestPlace first = nearest_place(task.shared, rows, row, x);
    const NearestPlace last = nearest_place(task.shared, rows, row, x + kRun - 1);
    if (first.inside && last.inside) {  // and so are those in between
#pragma unroll
      for (int j = 0; j < kRun; ++j) run.at[j] = first.at + j * task.run_step;
      run.has_padding = false;
      run.step = task.run_step == 1 || task.run_step == -1 ? task.run_step : 0;
      return run;
    }
  }
#pragma unroll 1
  for (int j = 0; j < kRun; ++j) {
    const int at = voxel + j < end ? nearest_place(task.shared, rows, row, x).at : -1;
#pragma unroll
    for (int k = 0; k < kRun; ++k) run.at[k] = k == j ? at : run.at[k];  // an index would need memory
    if (++x == length) x = 0, ++row;
  }
  note_order(run);
  return run;
}

template <class T>
struct RawRun {  // in their order in memory
  static constexpr int kWords = kRun * sizeof(T) / 4;
  uint32_t words[kWords];
};

template <class T>
__device__ RawRun<T> load_aligned(const T* from) {
  RawRun<T> raw;
  if constexpr (sizeof(T) == 1) {
    const uint2 words = __ldg(reinterpret_cast<const uint2*>(from));
    raw.words[0] = words.x, raw.words[1] = words.y;
  } else {
#pragma unroll
    for (int i = 0; i < RawRun<T>::kWords; i += 4) {
      const uint4 words = __ldg(reinterpret_cast<const uint4*>(from) + i / 4);
      raw.words[i] = words.x, raw.words[i + 1] = words.y, raw.words[i + 2] = words.z, raw.words[i + 3] = words.w;
    }
  }
  return raw;
}

// Only words that hold something of the run are read: what follows the last voxel in its word is memory of the device.
template <class T>
__device__ RawRun<T> load_words(const T* from) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(from);
  const uint32_t* words = reinterpret_cast<const uint32_t*>(address - address % 4);
  const auto shift = static_cast<unsigned>(address % 4 * 8);
  RawRun<T> raw;
#pragma unroll
  for (int i = 0; i < RawRun<T>::kWords; ++i) raw.words[i] = __ldg(words + i);
  if (shift == 0) return raw;
  const uint32_t last = __ldg(words + RawRun<T>::kWords);
#pragma unroll
  for (int i = 0; i < RawRun<T>::kWords; ++i)
    raw.words[i] = __funnelshift_r(raw.words[i], i + 1 < RawRun<T>::kWords ? raw.words[i + 1] : last, shift);
  return raw;
}

template <class T>
__device__ void load_run(const T* data, const Run& run, T (&stored)[kRun]) {
  if (run.step == 0) {
#pragma unroll
    for (int j = 0; j < kRun; ++j) stored[j] = run.at[j] < 0 ? T{} : __ldg(data + run.at[j]);
    return;
  }
  constexpr uintptr_t kAlignment = sizeof(T) == 1 ? 8 : 16;
  const T* lowest = data + (run.step < 0 ? run.at[kRun - 1] : run.at[0]);
  const bool aligned = reinterpret_cast<uintptr_t>(lowest) % kAlignment == 0;
  const RawRun<T> raw = aligned ? load_aligned(lowest) : load_words(lowest);
  memcpy(stored, &raw, sizeof raw);
  if (run.step > 0) return;
#pragma unroll
  for (int j = 0; j < kRun / 2; ++j) {
    const T other = stored[j];
    stored[j] = stored[kRun - 1 - j];
    stored[kRun - 1 - j] = other;
  }
}

__device__ inline uint32_t bfloat16_pair(float low, float high) {
  if (isnan(low) || isnan(high)) return to_bfloat16_bits(low) | uint32_t{to_bfloat16_bits(high)} << 16;
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

__device__ inline void put_run(float* to, const float (&value)[kRun]) {
  float4* fours = reinterpret_cast<float4*>(to);
  fours[0] = {value[0], value[1], value[2], value[3]};
  fours[1] = {value[4], value[5], value[6], value[7]};
}
__device__ inline void put_run(uint16_t* to, const float (&value)[kRun]) {
  *reinterpret_cast<uint4*>(to) = {bfloat16_pair(value[0], value[1]), bfloat16_pair(value[2], value[3]),
                                   bfloat16_pair(value[4], value[5]), bfloat16_pair(value[6], value[7])};
}

template <class Out>
__device__ void fill_nearest(const ChannelsTask& task, const BlockRows& rows, const TileRange& range, Out* tile) {
  for (int voxel = threadIdx.x * kRun; voxel < range.count; voxel += kChannelThreads * kRun) {
    const Run run = run_at(task, rows, range.start + voxel, range.start + range.count);
    for (int c = 0; c < task.count; ++c) {
      const Channel& channel = task.channels[c];
      float value[kRun];
      with_stored_type(channel.stored, [&](auto typed) {
        using T = decltype(typed);
        T stored[kRun];
        load_run(static_cast<const T*>(channel.data), run, stored);
#pragma unroll
        for (int j = 0; j < kRun; ++j) value[j] = static_cast<float>(stored[j]);
      });
      if (channel.scaled)
#pragma unroll
        for (int j = 0; j < kRun; ++j) value[j] = fmaf(channel.scale, value[j], channel.offset);
      if (run.has_padding)
#pragma unroll
        for (int j = 0; j < kRun; ++j) value[j] = run.at[j] < 0 ? channel.pad_value : value[j];
      put_run(tile + c * task.plane + voxel, value);
    }
  }
}

}  // namespace vox::cuda
