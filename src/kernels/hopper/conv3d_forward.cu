// Forward and data gradient. A block owns a column of 16 x 16 voxels (y, x) and 32 output channels, and marches along
// z. Each input plane (its tile with a halo of one voxel, 32 channels) is copied into shared memory ONCE. For each of
// the 9 taps within a plane and each 16 channels, one product of 64 x 96 multiplies 64 voxels (8 x 8, read from the
// shifted tile by an operand's address alone) by the weights of the three taps along z side by side: the accumulator's
// thirds are output planes z - 1, z and z + 1. After a plane the first third is complete, is stored, and the thirds
// move up. Three taps at once make the voxels cheap: 40 cycles of shared memory against 48 of tensor core for a
// product; one tap at a time would need 24 against 16. Four warpgroups have 8 x 8 voxels each; while one stores, the
// others multiply.
#include "kernels/hopper/moments.cuh"
#include "kernels/hopper/prologue.cuh"
#include "kernels/hopper/tiling.cuh"

namespace vox::cuda {
namespace {

constexpr int kConsumerWarps = 16, kConsumers = 32 * kConsumerWarps;
constexpr int kTapBytes = 96 * 64;          // weights of a tap in the plane: 3 along z, 32 outputs, 32 inputs
constexpr int kBlockBytes = 9 * kTapBytes;  // of 32 outputs and 32 inputs
constexpr int kOverlap = 2;                 // planes that a chunk along z reads beyond its own

struct ForwardTask {
  CUtensorMap input[2];
  Prologue prologue[2];
  Bf16* output[2];
  int output_channels[2];
  int input_blocks, output_blocks;  // of 32 channels, of the first tensor: the rest is the second's
  int out;
  const uint8_t* weights;
  float* moments;
  Tiling tiling;
};

template <int kInputBlocks>
constexpr int kStages = kInputBlocks == 1 ? 6 : 5;  // as many as there is shared memory for

template <int kInputBlocks>
struct Shared {
  static constexpr int kRing = kStages<kInputBlocks>;
  static constexpr int kBytes = kRing * kPlanePitch + kInputBlocks * kBlockBytes + 1024;
  uint32_t planes, weights;                      // addresses
  uint32_t copied, ready, empty, weights_ready;  // barriers, the first three one a stage
  __device__ __forceinline__ uint32_t plane(int stage) const { return planes + stage * kPlanePitch; }
};

// Runs f(piece, z, input block) over a block's planes in the order in which they go through the ring.
template <int kInputBlocks, class F>
__device__ __forceinline__ void each_plane(const Tiling& tiling, int first, int stride, F&& f) {
  for (int index = first; index < tiling.pieces(); index += stride) {
    const Piece piece = tiling.piece(index);
    const int last = min(piece.end_z, tiling.z - 1);
    for (int z = max(piece.begin_z - 1, 0); z <= last; ++z)
      for (int block = 0; block < kInputBlocks; ++block) f(piece, z, block);
  }
}

template <int kInputBlocks>
__device__ __forceinline__ void copy_planes(const ForwardTask& task, const Shared<kInputBlocks>& shared, int outputs,
                                            int first, int stride) {
  constexpr int kBytes = kInputBlocks * kBlockBytes;
  barrier_expect(shared.weights_ready, kBytes);
  for (int block = 0; block < kInputBlocks; ++block)
    copy_bytes(shared.weights + block * kBlockBytes,
               task.weights + (static_cast<int64_t>(outputs) * kInputBlocks + block) * kBlockBytes, kBlockBytes,
               shared.weights_ready);
  RingPosition<Shared<kInputBlocks>::kRing> at;
  each_plane<kInputBlocks>(task.tiling, first, stride, [&](const Piece& piece, int z, int block) {
    const int tensor = block >= task.input_blocks, channel = 32 * (block - tensor * task.input_blocks);
    barrier_wait(shared.empty + 8 * at.stage, at.parity ^ 1);
    barrier_expect(shared.copied + 8 * at.stage, kPlaneBytes);
    copy_box(shared.plane(at.stage), &task.input[tensor], shared.copied + 8 * at.stage,
             {channel, piece.x - 1, piece.y - 1, z, piece.n});
    at.advance();
  });
}

template <int kInputBlocks>
__device__ __forceinline__ void transform_planes(const ForwardTask& task, const Shared<kInputBlocks>& shared,
                                                 int thread, int first, int stride) {
  RingPosition<Shared<kInputBlocks>::kRing> at;
  each_plane<kInputBlocks>(task.tiling, first, stride, [&](const Piece& piece, int, int block) {
    const int tensor = block >= task.input_blocks, channel = 32 * (block - tensor * task.input_blocks);
    const PlaneTransform transform(task.prologue[tensor], piece.n, channel, thread);
    barrier_wait(shared.copied + 8 * at.stage, at.parity);
    transform.apply(shared.plane(at.stage), piece.y, piece.x, task.tiling.y, task.tiling.x);
    release_plane(shared.ready + 8 * at.stage);
    at.advance();
  });
}

// Where a thread's results go: voxels (y, x) and (y + 1, x) of the piece, eight channels.
struct Destination {
  Bf16* y;
  int64_t row, plane;  // strides
  bool inside[2];
  __device__ __forceinline__ Destination(const ForwardTask& task, const Piece& piece, int outputs, int at_y, int at_x,
                                         int z) {
    const int tensor = outputs >= task.output_blocks, channel = 32 * (outputs - tensor * task.output_blocks);
    const Tiling& t = task.tiling;
    const int py = piece.y + at_y, px = piece.x + at_x;
    row = static_cast<int64_t>(t.x) * task.output_channels[tensor];
    plane = row * t.y;
    y = task.output[tensor] + (static_cast<int64_t>(piece.n) * t.z + z) * plane + py * row +
        static_cast<int64_t>(px) * task.output_channels[tensor] + channel + 8 * (threadIdx.x % 4);
    inside[0] = py < t.y && px < t.x;
    inside[1] = inside[0] && py + 1 < t.y;
  }
};

// The first third of the accumulator is a finished plane: out with it (if `wanted`: it may belong to the chunk before),
// and the others move up.
template <bool kMoments>
__device__ __forceinline__ void emit(float (&sums)[48], Destination& to, ThreadMoments& moments, bool wanted) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
    if (wanted && to.inside[h]) {
      const float values[8] = {sums[2 * h],     sums[2 * h + 1], sums[2 * h + 4],  sums[2 * h + 5],
                               sums[2 * h + 8], sums[2 * h + 9], sums[2 * h + 12], sums[2 * h + 13]};
      const uint4 rounded = pack(values);
      *reinterpret_cast<uint4*>(to.y + (h ? to.row : 0)) = rounded;
      if (kMoments) moments.add(values, rounded);
    }
  to.y += to.plane;
#pragma unroll
  for (int i = 0; i < 32; ++i) sums[i] = sums[i + 16];
#pragma unroll
  for (int i = 32; i < 48; ++i) sums[i] = 0;
}

// One plane: all its input channels, all 27 taps.
template <int kInputBlocks>
__device__ __forceinline__ void multiply_plane(float (&sums)[48], const Shared<kInputBlocks>& shared, uint64_t weights,
                                               uint32_t patch, RingPosition<Shared<kInputBlocks>::kRing>& at) {
  constexpr int kRing = Shared<kInputBlocks>::kRing;
  const int first_stage = at.stage;
#pragma unroll
  for (int block = 0; block < kInputBlocks; ++block) {
    barrier_wait(shared.ready + 8 * at.stage, at.parity);
    const uint64_t voxels = operand(shared.plane(at.stage) + patch, 16, kHalo * 64);
    if (block == 0) {
      pin(sums);
      products_begin();
    }
#pragma unroll
    for (int tap = 0; tap < 9; ++tap)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        multiply_add<Summed::kAlongRows>(sums, moved(voxels, (tap / 3 * kHalo + tap % 3) * 64 + half * 32),
                                         moved(weights, (block * 9 + tap) * kTapBytes + half * 32));
    at.advance();
  }
  products_commit();
  products_wait<0>();
  pin(sums);
  if (threadIdx.x % 128 == 0) {
#pragma unroll
    for (int block = 0; block < kInputBlocks; ++block)
      barrier_arrive(shared.empty + 8 * ((first_stage + block) % kRing));
  }
}

template <int kInputBlocks, bool kMoments>
__device__ __forceinline__ void consume(const ForwardTask& task, const Shared<kInputBlocks>& shared,
                                        BlockMoments<kConsumerWarps>* block_moments, int outputs, int first,
                                        int stride) {
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4, lane = threadIdx.x % 32;
  const int patch_y = group / 2 * 8, patch_x = group % 2 * 8;
  const uint32_t patch = (patch_y * kHalo + patch_x) * 64;
  const uint64_t weights = operand(shared.weights, 16, 512);
  const Tiling& tiling = task.tiling;
  barrier_wait(shared.weights_ready, 0);
  float sums[48];
  ThreadMoments moments;
  RingPosition<Shared<kInputBlocks>::kRing> at;
  int set = 0;
  for (int index = first; index < tiling.pieces(); index += stride) {
    const Piece piece = tiling.piece(index);
    const int first_z = max(piece.begin_z - 1, 0), last_z = min(piece.end_z, tiling.z - 1);
    Destination to(task, piece, outputs, patch_y + 2 * (warp % 4), patch_x + lane / 4, first_z - 1);
#pragma unroll
    for (int i = 0; i < 48; ++i) sums[i] = 0;
    if (kMoments) moments.clear();
    for (int z = first_z; z <= last_z; ++z) {
      multiply_plane<kInputBlocks>(sums, shared, weights, patch, at);
      emit<kMoments>(sums, to, moments, z > piece.begin_z);
    }
    if (piece.end_z == tiling.z) emit<kMoments>(sums, to, moments, true);  // no plane follows that would complete it
    if (kMoments) {
      block_moments->put(moments, set, warp, lane);
      sync_consumers<kConsumers>();
      if (warp == 0)
        block_moments->store(task.moments + static_cast<int64_t>(index) * 3 * task.out + 32 * outputs, task.out, set,
                             lane);
      set ^= 1;
    }
  }
}

template <bool kPrologue>
constexpr int kThreads = kConsumers + (kPrologue ? 256 : 128);

template <int kInputBlocks, bool kMoments, bool kPrologue>
__global__ void __launch_bounds__(kThreads<kPrologue>, 1)
    conv3d_forward_kernel(const __grid_constant__ ForwardTask task) {
  constexpr int kRing = Shared<kInputBlocks>::kRing;
  extern __shared__ uint8_t memory[];
  __shared__ __align__(8) uint64_t barriers[3 * kRing + 1];
  __shared__ BlockMoments<kMoments ? kConsumerWarps : 1> block_moments;
  Shared<kInputBlocks> shared;
  shared.planes = (shared_address(memory) + 1023) & ~1023u;
  shared.weights = shared.planes + kRing * kPlanePitch;
  shared.ready = shared_address(barriers);
  shared.empty = shared.ready + 8 * kRing;
  shared.copied = kPrologue ? shared.ready + 16 * kRing : shared.ready;
  shared.weights_ready = shared.ready + 24 * kRing;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRing; ++i) {
      barrier_init(shared.ready + 8 * i, kPrologue ? kPrologueWarps : 1);
      barrier_init(shared.empty + 8 * i, kConsumerWarps / 4);
      if (kPrologue) barrier_init(shared.copied + 8 * i, 1);
    }
    barrier_init(shared.weights_ready, 1);
    barrier_init_done();
  }
  __syncthreads();
  const int output_blocks = task.out / 32, outputs = blockIdx.x % output_blocks;
  const int first = blockIdx.x / output_blocks, stride = gridDim.x / output_blocks;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (warp >= kConsumerWarps) {
    fewer_registers<kPrologue ? 48 : 24>();
    constexpr int kTransformers = kConsumers + 32;  // the first warp copies
    if (threadIdx.x == kConsumers)
      copy_planes<kInputBlocks>(task, shared, outputs, first, stride);
    else if (kPrologue && threadIdx.x >= kTransformers)
      transform_planes<kInputBlocks>(task, shared, threadIdx.x - kTransformers, first, stride);
  } else {
    more_registers<kPrologue ? 96 : 112>();
    if constexpr (kMoments)
      consume<kInputBlocks, true>(task, shared, &block_moments, outputs, first, stride);
    else
      consume<kInputBlocks, false>(task, shared, nullptr, outputs, first, stride);
  }
}

int blocks_per_output(const Conv3d& conv) {
  return std::max(1, multiprocessors() / static_cast<int>(conv.out() / 32));
}
Tiling forward_tiling(const Conv3d& conv) {
  return columns_of(conv, blocks_per_output(conv), kOverlap);
}

template <int kInputBlocks, bool kMoments, bool kPrologue>
void launch(const ForwardTask& task, int blocks, Stream stream) {
  constexpr auto kKernel = conv3d_forward_kernel<kInputBlocks, kMoments, kPrologue>;
  constexpr int kBytes = Shared<kInputBlocks>::kBytes;
  allow_shared_memory<kKernel>(kBytes);
  kKernel<<<blocks, kThreads<kPrologue>, kBytes, stream>>>(task);
  check_launch("conv3d_forward");
}
template <int kInputBlocks>
void launch(const ForwardTask& task, int blocks, Stream stream) {
  const bool prologue = task.prologue[0].scale != nullptr || task.prologue[1].scale != nullptr;
  if (task.moments != nullptr)
    prologue ? launch<kInputBlocks, true, true>(task, blocks, stream)
             : launch<kInputBlocks, true, false>(task, blocks, stream);
  else
    prologue ? launch<kInputBlocks, false, true>(task, blocks, stream)
             : launch<kInputBlocks, false, false>(task, blocks, stream);
}

// One thread an element. Packed: [output block][input block][tap in the plane][tap along z, last first][32 outputs, in
// the order of an accumulator's columns][32 inputs], swizzled: the image that a block copies into shared memory.
__global__ void pack_kernel(const Bf16* __restrict__ weights, Bf16* __restrict__ packed, int in, int out, ConvWay way) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= int64_t{27} * in * out) return;
  const int k = static_cast<int>(i % 32), column = static_cast<int>(i / 32 % 32);
  const int third = static_cast<int>(i / 1024 % 3), in_plane = static_cast<int>(i / 3072 % 9);
  const int64_t block = i / 27648;
  const int from = static_cast<int>(block % (in / 32)) * 32 + k;
  const int to = static_cast<int>(block / (in / 32)) * 32 + channel_of_column(column);
  const int tap = (2 - third) * 9 + in_plane;
  const int64_t source =
      way == ConvWay::kForward ? (int64_t{to} * 27 + tap) * in + from : (int64_t{from} * 27 + (26 - tap)) * out + to;
  const uint32_t linear = (third * 32 + column) * 64 + 2 * k, swizzled = linear ^ (((linear >> 7) & 3) << 4);
  packed[(block * 9 + in_plane) * (kTapBytes / 2) + swizzled / 2] = weights[source];
}

}  // namespace

void conv3d_pack(const void* weights, void* packed, int64_t in, int64_t out, ConvWay way, Stream stream) {
  VOX_ASSERT(in % 32 == 0 && out % 32 == 0 && in * out < (int64_t{1} << 26));
  if (way == ConvWay::kGradient) std::swap(in, out);
  constexpr int kPackThreads = 256;
  const auto blocks = static_cast<unsigned>((27 * in * out + kPackThreads - 1) / kPackThreads);
  pack_kernel<<<blocks, kPackThreads, 0, stream>>>(static_cast<const Bf16*>(weights), static_cast<Bf16*>(packed),
                                                   static_cast<int>(in), static_cast<int>(out), way);
  check_launch("conv3d_pack");
}

int64_t conv3d_moment_rows(const Conv3d& conv) {
  return forward_tiling(conv).per_sample();
}

double conv3d_forward_use(const Conv3d& conv) {
  return use_of_columns(forward_tiling(conv), blocks_per_output(conv), kOverlap);
}

void conv3d_forward(const Conv3d& conv, const void* packed, float* moments, Stream stream) {
  VOX_ASSERT(conv.in() == 32 || conv.in() == 64);
  VOX_ASSERT(conv.input[0].channels % 32 == 0 && conv.input[0].channels > 0);
  VOX_ASSERT(conv.output[0].channels % 32 == 0 && conv.output[1].channels % 32 == 0 && conv.output[0].channels > 0);
  ForwardTask task{};
  task.tiling = forward_tiling(conv);
  for (int i = 0; i < 2; ++i) {
    const ConvInput& input = conv.input[i];
    if (input.channels > 0) task.input[i] = tensor_map(input.x, input.channels, task.tiling, kHalo, kHalo);
    task.prologue[i] = prologue_of(input);
    task.output[i] = static_cast<Bf16*>(conv.output[i].y);
    task.output_channels[i] = static_cast<int>(conv.output[i].channels);
  }
  task.input_blocks = static_cast<int>(conv.input[0].channels / 32);
  task.output_blocks = static_cast<int>(conv.output[0].channels / 32);
  task.out = static_cast<int>(conv.out());
  task.weights = static_cast<const uint8_t*>(packed);
  task.moments = moments;
  const int blocks = std::min(blocks_per_output(conv), task.tiling.pieces()) * (task.out / 32);
  conv.in() == 32 ? launch<1>(task, blocks, stream) : launch<2>(task, blocks, stream);
}

}  // namespace vox::cuda
