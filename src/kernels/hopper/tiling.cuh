// How a volume is cut into the pieces that blocks work on, and the copy engine's description of a tensor.
#pragma once

#include <algorithm>
#include <mutex>

#include "kernels/hopper/conv3d.h"
#include "kernels/hopper/device.cuh"

namespace vox::cuda {

// One piece: the column of a tile over the planes begin_z .. end_z - 1 of sample n.
struct Piece {
  int x, y, begin_z, end_z, n;
};
struct Tiling {
  int n = 1, z = 1, y = 1, x = 1;            // of the volume
  int tile_y = 16, tile_x = 16, planes = 1;  // of a piece
  int tiles_y = 1, tiles_x = 1, chunks = 1;  // pieces of a sample along y, x, z
  __host__ __device__ int per_sample() const { return tiles_x * tiles_y * chunks; }
  __host__ __device__ int pieces() const { return n * per_sample(); }
  __device__ __forceinline__ Piece piece(int index) const {
    Piece p;
    p.x = index % tiles_x * tile_x;
    index /= tiles_x;
    p.y = index % tiles_y * tile_y;
    index /= tiles_y;
    p.begin_z = index % chunks * planes;
    p.end_z = min(p.begin_z + planes, z);
    p.n = index / chunks;
    return p;
  }
};

inline Tiling tiling_of(const Conv3d& conv, int tile_y, int tile_x) {
  constexpr int64_t kMost = int64_t{1} << 30;
  VOX_ASSERT(conv.n > 0 && conv.z > 0 && conv.y > 0 && conv.x > 0);
  VOX_ASSERT(conv.n * conv.z < kMost && conv.y < kMost && conv.x < kMost && conv.y * conv.x < kMost);
  Tiling t{static_cast<int>(conv.n), static_cast<int>(conv.z), static_cast<int>(conv.y), static_cast<int>(conv.x)};
  t.tile_y = tile_y;
  t.tile_x = tile_x;
  t.tiles_y = (t.y + tile_y - 1) / tile_y;
  t.tiles_x = (t.x + tile_x - 1) / tile_x;
  return t;
}

// Columns of 16 x 16 voxels, cut along z so that `blocks` blocks at a time are done soonest; `overlap`: planes that a
// chunk reads beyond its own.
inline Tiling columns_of(const Conv3d& conv, int blocks, int overlap) {
  Tiling best = tiling_of(conv, 16, 16);
  int64_t least = INT64_MAX;
  for (int chunks = 1; chunks <= std::min(best.z, 64); ++chunks) {
    Tiling t = best;
    t.planes = (t.z + chunks - 1) / chunks;
    t.chunks = (t.z + t.planes - 1) / t.planes;
    const int64_t rounds = (t.pieces() + blocks - 1) / blocks;
    const int64_t cost = rounds * (t.planes + (t.chunks > 1 ? overlap : 0));
    if (cost < least) {
      least = cost;
      best.planes = t.planes;
      best.chunks = t.chunks;
    }
  }
  return best;
}
// The part of the tensor cores' time that goes into voxels of the volume, all else being perfect.
inline double use_of_columns(const Tiling& t, int blocks, int overlap) {
  const double rounds = (t.pieces() + blocks - 1) / blocks;
  const double planes = rounds * (t.planes + (t.chunks > 1 ? overlap : 0));
  return double(t.n) * t.z * t.y * t.x / (planes * blocks * t.tile_y * t.tile_x);
}

double conv3d_forward_use(const Conv3d& conv);
double conv3d_weight_gradient_use(const Conv3d& conv);

// As loads and stores of 16 bytes and the copy engine want it. Null counts.
inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// Tensor map of [n, z, y, x, channels] bfloat16 with boxes of 32 channels, box_x, box_y voxels and one plane.
inline CUtensorMap tensor_map(const void* data, int64_t channels, const Tiling& t, int box_y, int box_x) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {  // from the driver that is there: linking to it would need one to start at all
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
          "cuTensorMapEncodeTiled");
    VOX_ASSERT(found != nullptr);
    return reinterpret_cast<Encode>(found);
  }();
  const auto c = static_cast<cuuint64_t>(channels);
  const cuuint64_t sizes[5] = {c, cuuint64_t(t.x), cuuint64_t(t.y), cuuint64_t(t.z), cuuint64_t(t.n)};
  cuuint64_t strides[4] = {2 * c};
  for (int i = 1; i < 4; ++i) strides[i] = strides[i - 1] * sizes[i];
  const cuuint32_t box[5] = {32, cuuint32_t(box_x), cuuint32_t(box_y), 1, 1}, step[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, const_cast<void*>(data), sizes, strides,
                                 box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  VOX_ASSERT(status == CUDA_SUCCESS);
  return map;
}

// Lets a kernel use more than 48 KB of shared memory: once per kernel and device.
template <auto kKernel>
void allow_shared_memory(int bytes) {
  constexpr int kDevices = 64;
  static std::once_flag done[kDevices];
  int device = 0;
  check(cudaGetDevice(&device), "device");
  VOX_ASSERT(device < kDevices);
  std::call_once(done[device], [bytes] {
    check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "shared memory");
  });
}

}  // namespace vox::cuda
