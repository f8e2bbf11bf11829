// Included by .cu files that walk over tensors [n, z, y, x, c] voxel by voxel: each thread keeps W neighbouring
// channels (8 or 16 bytes of them, or one where that does not fit), so that what belongs to a channel stays in its
// registers, and reads them at every `lanes`-th voxel of its block's chunk. Neighbouring threads read neighbouring
// memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cuda_device.cuh"

namespace vox::cuda {

constexpr int kWalkThreads = 256;

// W values as they lie in memory: 8 or 16 bytes, or one value.
template <class T, int W>
using Raw = std::conditional_t<W == 1, T, std::conditional_t<sizeof(T) * W == 16, uint4, uint2>>;

template <class T, int W>
__device__ __forceinline__ Raw<T, W> load(const T* from) {
  return *reinterpret_cast<const Raw<T, W>*>(from);
}
template <class T, int W>
__device__ __forceinline__ void store(T* to, const Raw<T, W>& raw) {
  *reinterpret_cast<Raw<T, W>*>(to) = raw;
}

__device__ __forceinline__ float2 unpack_pair(uint32_t bits, __nv_bfloat16) {
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
}
__device__ __forceinline__ float2 unpack_pair(uint32_t bits, __half) {
  return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}
__device__ __forceinline__ uint32_t pack_pair(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t pack_pair(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <class T, int W>
__device__ __forceinline__ void unpack(const Raw<T, W>& raw, float (&values)[W]) {
  if constexpr (W == 1) {
    values[0] = to_float(raw);
  } else {
    constexpr int kWords = sizeof(raw) / 4;
    uint32_t words[kWords];
    memcpy(words, &raw, sizeof(raw));
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (sizeof(T) == 4) {
        values[i] = __uint_as_float(words[i]);
      } else {
        const float2 pair = unpack_pair(words[i], T{});
        values[2 * i] = pair.x;
        values[2 * i + 1] = pair.y;
      }
    }
  }
}

template <class T, int W>
__device__ __forceinline__ Raw<T, W> pack(const float (&values)[W]) {
  if constexpr (W == 1) {
    return from_float<T>(values[0]);
  } else {
    constexpr int kWords = sizeof(Raw<T, W>) / 4;
    uint32_t words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (sizeof(T) == 4)
        words[i] = __float_as_uint(values[i]);
      else
        words[i] = pack_pair(values[2 * i], values[2 * i + 1], T{});
    }
    Raw<T, W> raw;
    memcpy(&raw, words, sizeof(raw));
    return raw;
  }
}

// W neighbouring float32 values, or `missing` where there are none.
template <int W>
__device__ __forceinline__ void load_coefficients(const float* from, float missing, float (&values)[W]) {
#pragma unroll
  for (int i = 0; i < W; ++i) values[i] = missing;
  if (!from) return;
  if constexpr (W == 1) {
    values[0] = from[0];
  } else {
#pragma unroll
    for (int i = 0; i < W; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
    }
  }
}

// How a grid (chunks, tiles of channels, samples) of blocks of kWalkThreads walks over a tensor.
struct Walk {
  int64_t voxels = 0;  // of one sample
  int channels = 0;
  int tile = 1;   // groups of W channels that a block takes
  int lanes = 1;  // voxels that a block takes at once
  int chunk = 1;  // voxels of a block
};

// Where a thread stands: voxels `first`, `first + lanes`, ... below `end`, counted within the block's chunk, the first
// at `offset`. A thread without work has first == end and a channel that may be read.
struct Place {
  int channel = 0, first = 0, end = 0;
  int64_t offset = 0, sample = 0;
};

template <int W>
__device__ __forceinline__ Place place_of_thread(const Walk& walk) {
  Place place;
  const int lane = static_cast<int>(threadIdx.x) / walk.tile;
  const int channel = (static_cast<int>(blockIdx.y) * walk.tile + static_cast<int>(threadIdx.x) % walk.tile) * W;
  const int64_t begin = int64_t{blockIdx.x} * walk.chunk;
  const int64_t left = walk.voxels - begin;
  place.sample = blockIdx.z;
  place.end = static_cast<int>(left < walk.chunk ? left : walk.chunk);
  const bool works = lane < walk.lanes && channel < walk.channels;
  place.first = works ? lane : place.end;
  place.channel = works ? channel : 0;
  place.offset = (place.sample * walk.voxels + begin + place.first) * walk.channels + place.channel;
  return place;
}

inline Walk walk_over(const Shape5& shape, int width) {
  VOX_ASSERT(shape.c >= 1 && shape.c % width == 0 && shape.n < 65536);
  const int groups = static_cast<int>(shape.c / width);
  const int tiles = (groups + kWalkThreads - 1) / kWalkThreads;
  Walk walk;
  walk.voxels = shape.voxels();
  walk.channels = static_cast<int>(shape.c);
  walk.tile = (groups + tiles - 1) / tiles;
  walk.lanes = kWalkThreads / walk.tile;
  return walk;
}

inline dim3 grid_of(const Walk& walk, const Shape5& shape, int width) {
  const int64_t chunks = (walk.voxels + walk.chunk - 1) / walk.chunk;
  const int64_t groups = shape.c / width;
  return {static_cast<unsigned>(chunks), static_cast<unsigned>((groups + walk.tile - 1) / walk.tile),
          static_cast<unsigned>(shape.n)};
}

inline bool aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// Sums of a block's threads that share a channel, in an order that depends on the walk alone. `use(channel, totals)` is
// called once for each channel of the block, by one thread. `shared` has kWalkThreads * TERMS * W floats.
template <int W, int TERMS, class Use>
__device__ __forceinline__ void sum_over_lanes(const Walk& walk, float (&sums)[TERMS][W], float* shared, Use&& use) {
  const int thread = static_cast<int>(threadIdx.x), width = walk.tile * W;
  const bool shuffles = walk.tile <= 32 && (walk.tile & (walk.tile - 1)) == 0;
  int row = thread / walk.tile, rows = walk.lanes;
  bool writes = row < walk.lanes;
  if (shuffles) {  // threads of a warp with equal channels are `tile` apart
#pragma unroll
    for (int term = 0; term < TERMS; ++term) {
#pragma unroll
      for (int i = 0; i < W; ++i) {
        for (int apart = 16; apart >= walk.tile; apart /= 2)
          sums[term][i] += __shfl_xor_sync(0xffffffffu, sums[term][i], apart);
      }
    }
    writes = thread % 32 < walk.tile;
    row = thread / 32;
    rows = kWalkThreads / 32;
  }
  if (writes) {
    float* const to = shared + row * TERMS * width + thread % walk.tile * W;
#pragma unroll
    for (int term = 0; term < TERMS; ++term) {
#pragma unroll
      for (int i = 0; i < W; ++i) to[term * width + i] = sums[term][i];
    }
  }
  __syncthreads();
  for (int i = thread; i < width; i += kWalkThreads) {
    const int channel = static_cast<int>(blockIdx.y) * width + i;
    if (channel >= walk.channels) break;
    float totals[TERMS] = {};
#pragma unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma unroll
      for (int term = 0; term < TERMS; ++term) totals[term] += shared[(r * TERMS + term) * width + i];
    }
    use(channel, totals);
  }
}

// One row of partial sums for each chunk. Independent of the batch and of the machine, so that the sums are, too.
inline int chunk_of_sums(const Shape5& shape) {
  constexpr int64_t kElementsOfRow = 8192, kMostRows = 512;
  const int64_t voxels = shape.voxels();
  const int64_t rows = std::clamp<int64_t>(voxels * shape.c / kElementsOfRow, 1, std::min(kMostRows, voxels));
  return static_cast<int>((voxels + rows - 1) / rows);
}
inline int64_t rows_of_sums(const Shape5& shape) {
  const int chunk = chunk_of_sums(shape);
  return (shape.voxels() + chunk - 1) / chunk;
}

// Element by element: enough blocks to fill a large GPU, then up to four rounds of `unroll` voxels in each.
inline int chunk_of_map(const Walk& walk, const Shape5& shape, int unroll) {
  constexpr int64_t kBlocks = 1024;
  const int64_t round = int64_t{walk.lanes} * unroll;
  const int64_t rounds = shape.n * ((walk.voxels + round - 1) / round);
  return static_cast<int>(round * std::clamp<int64_t>(rounds / kBlocks, 1, 4));
}

}  // namespace vox::cuda
