// Weight gradient of the one-channel first layer: dw[o][tap] = sum over voxels v of x[v + tap - 1] * dy[v][o], bound by
// the 64 bytes of dy a voxel. Warp w of a block takes row w of its tiles; warp 8 streams dy, plane by plane.
#include "kernels/hopper/first_layer.cuh"

namespace vox::cuda {
namespace {

constexpr int kStages = 4, kStageBytes = kTileX * kTileY * 64;
constexpr int kSharedBytes = kStages * kStageBytes + 1024;
constexpr int kSums = 27 * 32;  // [tap][output]
static_assert(kTileWarps * 32 * 32 * 4 <= kStages * kStageBytes);

struct FirstLayerGradTask {
  CUtensorMap grad;
  const uint16_t* x;
  float* partials;
  Tiling tiling;
};

__device__ __forceinline__ void copy_planes(const FirstLayerGradTask& task, uint32_t stages, uint32_t ready,
                                            uint32_t empty) {
  RingPosition<kStages> at;
  for (int index = blockIdx.x; index < task.tiling.pieces(); index += gridDim.x) {
    const Piece piece = task.tiling.piece(index);
    for (int z = 0; z < kTileZ; ++z) {
      barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
      barrier_expect(ready + 8 * at.stage, kStageBytes);
      copy_box(stages + at.stage * kStageBytes, &task.grad, ready + 8 * at.stage,
               {0, piece.x, piece.y, piece.begin_z + z, piece.n});
      at.advance();
    }
  }
}

// dy of the warp's row: voxels are the summed index, 8 outputs a fragment.
struct GradRow {
  uint32_t fragment[2][4][2];  // [half of the row][outputs][]
  __device__ __forceinline__ void load(uint32_t stage, int warp, int lane) {
    const uint32_t row = (warp * 32 + lane % 16) * 64, swizzle = lane % 8 / 2;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const uint32_t address = stage + row + half * 1024 + (((lane / 16 + j) ^ swizzle) << 4);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(fragment[half][j][0]), "=r"(fragment[half][j][1]), "=r"(fragment[half][j + 1][0]),
                       "=r"(fragment[half][j + 1][1])
                     : "r"(address)
                     : "memory");
      }
  }
};

// Of a fragment's rows (lane / 4 + 8 i: taps, those from 27 on are not used) the words of the tile.
struct TapWords {
  int at[4];
  __device__ __forceinline__ TapWords(int warp, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * i, tap = row < 27 ? row : 0, kx = tap % 3;
      at[i] = tap / 9 * kPlaneWords + (tap / 3 % 3 + warp) * kRowWords + lane % 4 + (kx == 1 ? kSecondCopy : kx / 2);
    }
  }
};

__device__ __forceinline__ void add_plane(float (&sums)[2][4][4], const GradRow& grad, const TapWords& words,
                                          const uint32_t* plane) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const uint32_t* from = plane + half * 8;
      const uint32_t taps[4] = {from[words.at[2 * m]], from[words.at[2 * m + 1]], from[words.at[2 * m] + 4],
                                from[words.at[2 * m + 1] + 4]};
#pragma unroll
      for (int j = 0; j < 4; ++j) multiply_add(sums[m][j], taps, grad.fragment[half][j]);
    }
}

// All stages are consumed: their memory takes the warps' sums, which are added in the order of the warps.
__device__ __forceinline__ void store_sums(const float (&sums)[2][4][4], float* memory, float* partial, int warp,
                                           int lane) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        memory[warp * 1024 + (m * 16 + lane / 4 + 8 * (i / 2)) * 32 + 8 * j + 2 * (lane % 4) + i % 2] = sums[m][j][i];
  sync_consumers<32 * kTileWarps>();
  for (int i = threadIdx.x; i < kSums; i += 32 * kTileWarps) {
    float sum = 0;
    for (int k = 0; k < kTileWarps; ++k) sum += memory[k * 1024 + i];
    partial[i] = sum;
  }
}

__global__ void __launch_bounds__(32 * kTileWarps + 32, kBlocksPerMultiprocessor)
    conv3d_first_layer_weight_gradient_kernel(const __grid_constant__ FirstLayerGradTask task) {
  extern __shared__ uint8_t memory[];
  __shared__ __align__(8) uint64_t barriers[2 * kStages];
  __shared__ uint32_t tiles[2][kTileWords];
  const uint32_t before = -shared_address(memory) & 1023;
  const uint32_t stages = shared_address(memory) + before;
  const uint32_t ready = shared_address(barriers), empty = ready + 8 * kStages;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(ready + 8 * i, 1);
      barrier_init(empty + 8 * i, kTileWarps);
    }
    barrier_init_done();
  }
  __syncthreads();
  if (warp == kTileWarps) {
    if (lane == 0) copy_planes(task, stages, ready, empty);
    return;
  }
  float sums[2][4][4] = {};
  const TapWords words(warp, lane);
  TileLoad next;
  next.load(task.x, task.tiling, blockIdx.x, warp, lane);
  next.store(tiles[0], warp, lane);
  sync_consumers<32 * kTileWarps>();
  RingPosition<kStages> at;
  int buffer = 0;
  for (int index = blockIdx.x; index < task.tiling.pieces(); index += gridDim.x, buffer ^= 1) {
    const int following = index + gridDim.x;
    if (following < task.tiling.pieces()) next.load(task.x, task.tiling, following, warp, lane);
#pragma unroll
    for (int z = 0; z < kTileZ; ++z) {
      barrier_wait(ready + 8 * at.stage, at.parity);
      GradRow grad;
      grad.load(stages + at.stage * kStageBytes, warp, lane);
      fence_before_async();
      __syncwarp();
      if (lane == 0) barrier_arrive(empty + 8 * at.stage);
      at.advance();
      add_plane(sums, grad, words, tiles[buffer] + z * kPlaneWords);
    }
    if (following < task.tiling.pieces()) next.store(tiles[buffer ^ 1], warp, lane);
    sync_consumers<32 * kTileWarps>();
  }
  store_sums(sums, reinterpret_cast<float*>(memory + before), task.partials + int64_t{blockIdx.x} * kSums, warp, lane);
}

// A block for each tap; eight parts of the blocks' partials, always the same.
__global__ void __launch_bounds__(256)
    reduce_kernel(const float* __restrict__ partials, float* __restrict__ dw, int blocks) {
  __shared__ float parts[8][32];
  const int tap = blockIdx.x, output = threadIdx.x % 32, part = threadIdx.x / 32;
  float sum = 0;
  for (int block = part; block < blocks; block += 8) sum += partials[int64_t{block} * kSums + tap * 32 + output];
  parts[part][output] = sum;
  __syncthreads();
  if (part != 0) return;
  for (int i = 1; i < 8; ++i) sum += parts[i][output];
  dw[output * 27 + tap] = sum;
}

}  // namespace

int64_t conv3d_first_layer_workspace(const Conv3d& conv) {
  return int64_t{first_layer_blocks(first_layer_tiling(conv))} * kSums * static_cast<int64_t>(sizeof(float));
}

void conv3d_first_layer_weight_gradient(const Conv3d& conv, float* dw, void* workspace, Stream stream) {
  VOX_ASSERT(conv.in() == 1 && conv.output[0].channels == 32 && conv.input[0].scale == nullptr);
  FirstLayerGradTask task{};
  task.tiling = first_layer_tiling(conv);
  task.grad = tensor_map(conv.output[0].y, 32, task.tiling, kTileY, kTileX);
  task.x = static_cast<const uint16_t*>(conv.input[0].x);
  task.partials = static_cast<float*>(workspace);
  const int blocks = first_layer_blocks(task.tiling);
  allow_shared_memory<conv3d_first_layer_weight_gradient_kernel>(kSharedBytes);
  conv3d_first_layer_weight_gradient_kernel<<<blocks, 32 * kTileWarps + 32, kSharedBytes, stream>>>(task);
  check_launch("conv3d_first_layer_weight_gradient");
  reduce_kernel<<<27, 256, 0, stream>>>(task.partials, dw, blocks);
  check_launch("conv3d_first_layer_weight_gradient's sum");
}

}  // namespace vox::cuda
