// One channel in, 32 out: bound by the 64 bytes that each voxel of y takes. The products are small, so that those of a
// single warp are enough. Warp w computes row w of a tile, marching along z with the fragments of three planes in
// registers.
#include "kernels/hopper/first_layer.cuh"
#include "kernels/hopper/moments.cuh"

namespace vox::cuda {
namespace {

struct FirstLayerTask {
  const uint16_t* x;
  const uint16_t* weights;
  Bf16* y;
  float* moments;
  Tiling tiling;
};

// The summed index is 16 kz + (2 ky + kx, or 8 + 2 ky for kx = 2); what ky = 3 and the column after kx = 2 meet is
// zero.
struct Weights {
  uint32_t fragment[3][4][2];
  __device__ __forceinline__ explicit Weights(const uint16_t* __restrict__ weights) {
    const int lane = threadIdx.x % 32, ky = lane % 4;
#pragma unroll
    for (int kz = 0; kz < 3; ++kz)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint16_t* row = weights + channel_of_column(8 * j + lane / 4) * 27 + kz * 9 + ky * 3;
        fragment[kz][j][0] = ky < 3 ? row[0] | (static_cast<uint32_t>(row[1]) << 16) : 0;
        fragment[kz][j][1] = ky < 3 ? row[2] : 0;
      }
  }
};

__device__ __forceinline__ void load_plane(uint32_t (&fragment)[4], const uint32_t* plane) {
  fragment[0] = plane[0];
  fragment[1] = plane[4];
  fragment[2] = plane[1];
  fragment[3] = plane[5];
}

// 16 voxels of the warp's row (the half of it), all planes of the tile.
template <bool kMoments>
__device__ __forceinline__ void march(const FirstLayerTask& task, const Weights& weights, const Piece& piece,
                                      const uint32_t* tile, int warp, int half, ThreadMoments& moments) {
  const Tiling& t = task.tiling;
  const int lane = threadIdx.x % 32, quad = lane % 4, voxel = lane / 4;
  const uint32_t* from = tile + (warp + min(quad, 2)) * kRowWords + half * 8 + voxel / 2 + voxel % 2 * kSecondCopy;
  const int y = piece.y + warp, x = piece.x + half * 16 + voxel;
  const bool inside[2] = {y < t.y && x < t.x, y < t.y && x + 8 < t.x};
  Bf16* to = task.y + (((static_cast<int64_t>(piece.n) * t.z + piece.begin_z) * t.y + y) * t.x + x) * 32 + 8 * quad;
  uint32_t planes[3][4];
  load_plane(planes[0], from);
  load_plane(planes[1], from + kPlaneWords);
#pragma unroll
  for (int z = 0; z < kTileZ; ++z) {
    load_plane(planes[(z + 2) % 3], from + (z + 2) * kPlaneWords);
    float sums[4][4] = {};
#pragma unroll
    for (int kz = 0; kz < 3; ++kz)
#pragma unroll
      for (int j = 0; j < 4; ++j) multiply_add(sums[j], planes[(z + kz) % 3], weights.fragment[kz][j]);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (piece.begin_z + z < t.z && inside[h]) {
        const float values[8] = {sums[0][2 * h], sums[0][2 * h + 1], sums[1][2 * h], sums[1][2 * h + 1],
                                 sums[2][2 * h], sums[2][2 * h + 1], sums[3][2 * h], sums[3][2 * h + 1]};
        *reinterpret_cast<uint4*>(to + h * 8 * 32) = pack(values);
        if (kMoments) moments.add(values, z == 0);
      }
    to += static_cast<int64_t>(t.y) * t.x * 32;
  }
}

// Of every sample a block has a row of moments, and not every block has voxels of every sample.
__device__ __forceinline__ void clear_rows(const FirstLayerTask& task) {
  for (int n = 0; n < task.tiling.n; ++n)
    if (threadIdx.x < 96) task.moments[(static_cast<int64_t>(n) * gridDim.x + blockIdx.x) * 96 + threadIdx.x] = 0;
}

template <bool kMoments>
__global__ void __launch_bounds__(32 * kTileWarps, kBlocksPerMultiprocessor)
    conv3d_first_layer_kernel(const FirstLayerTask task) {
  __shared__ uint32_t tiles[2][kTileWords];
  __shared__ BlockMoments<kMoments ? kTileWarps : 1> block_moments;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const Tiling& tiling = task.tiling;
  const Weights weights(task.weights);
  ThreadMoments moments;
  if (kMoments) {
    clear_rows(task);
    moments.clear();
  }
  TileLoad next;
  next.load(task.x, tiling, blockIdx.x, warp, lane);
  next.store(tiles[0], warp, lane);
  __syncthreads();
  int buffer = 0, set = 0;
  for (int index = blockIdx.x; index < tiling.pieces(); index += gridDim.x, buffer ^= 1) {
    const int following = index + gridDim.x;
    if (following < tiling.pieces()) next.load(task.x, tiling, following, warp, lane);
    const Piece piece = tiling.piece(index);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) march<kMoments>(task, weights, piece, tiles[buffer], warp, half, moments);
    if (following < tiling.pieces()) next.store(tiles[buffer ^ 1], warp, lane);
    if constexpr (kMoments) {
      const bool last_of_sample = following >= tiling.pieces() || following / tiling.per_sample() != piece.n;
      if (last_of_sample) {
        block_moments.put(moments, set, warp, lane);
        moments.clear();
      }
      __syncthreads();
      if (last_of_sample && warp == 0)
        block_moments.store(task.moments + (static_cast<int64_t>(piece.n) * gridDim.x + blockIdx.x) * 96, 32, set,
                            lane);
      set ^= last_of_sample;
    } else {
      __syncthreads();
    }
  }
}

}  // namespace

bool conv3d_first_layer_available(const Conv3d& conv) {
  return conv3d_available() && conv.in() == 1 && conv.out() == 32 && conv.output[0].channels == 32 &&
         conv.input[0].scale == nullptr;
}

int64_t conv3d_first_layer_moment_rows(const Conv3d& conv) {
  return first_layer_blocks(first_layer_tiling(conv));
}

void conv3d_first_layer(const Conv3d& conv, const void* weights, float* moments, Stream stream) {
  VOX_ASSERT(conv.in() == 1 && conv.output[0].channels == 32 && conv.input[0].scale == nullptr);
  VOX_ASSERT(is_aligned(conv.output[0].y));
  const FirstLayerTask task{static_cast<const uint16_t*>(conv.input[0].x), static_cast<const uint16_t*>(weights),
                            static_cast<Bf16*>(conv.output[0].y), moments, first_layer_tiling(conv)};
  const int blocks = first_layer_blocks(task.tiling);
  if (moments != nullptr)
    conv3d_first_layer_kernel<true><<<blocks, 32 * kTileWarps, 0, stream>>>(task);
  else
    conv3d_first_layer_kernel<false><<<blocks, 32 * kTileWarps, 0, stream>>>(task);
  check_launch("conv3d_first_layer");
}

}  // namespace vox::cuda
