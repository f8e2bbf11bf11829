// dw[o][tap][i] = sum over voxels v of dy[v][o] * x[v + tap - 1][i]: a product summed over voxels, so both operands are
// read across the rows of their tiles. A block owns 32 inputs, 32 outputs and columns of 16 x 16 voxels, and marches
// along z with a ring of dy planes and of x planes. One product of 64 x 96 covers 16 voxels of a row:
//   96: the three taps along x (the same row of x, begun one voxel later each: a stride of 64 bytes)
//   64: two shifts of dy, that is two taps; the second copy of dy is only a stride away, too.
// The 9 taps (z, y) are covered by 5 such products (27 of 30 slots useful):
//   warpgroup g = 0, 1, 2: x plane z + g - 1, row r + 1; dy rows r and r + 1 of plane z -> taps (g, 2) and (g, 1)
//   warpgroup 0 also:      x plane z + 1, row r - 1; dy row r of planes z and z + 1     -> taps (2, 0) and (1, 0)
//   warpgroup 1 also:      x plane z - 1, row r - 1; dy row r of plane z                -> tap (0, 0)
// The second half of a pair sums over dy shifted by one: tiles at y = 0 add the row before it and chunks at z = 0 the
// plane before it, and every row and plane of dy counts once. Planes z and z + 1 of dy must be neighbours in shared
// memory, so the plane in the ring's first stage is copied a second time behind its last.
#include "kernels/hopper/prologue.cuh"
#include "kernels/hopper/tiling.cuh"

namespace vox::cuda {
namespace {

constexpr int kInputRing = 5, kGradRing = 4;
constexpr int kGradBytes = kHalo * 16 * 64;  // of a dy plane's tile: 18 rows of 16 voxels
constexpr int kSharedBytes = kInputRing * kPlanePitch + (kGradRing + 1) * kGradBytes + 1024;
constexpr int kPartial = 27 * 32 * 32;  // sums of one block: [tap][output][input]
constexpr int kOverlap = 1;
constexpr int kGroups = 3, kConsumers = 128 * kGroups;

struct GradTask {
  CUtensorMap input[2], grad;
  Prologue prologue[2];
  int first_input_blocks, input_blocks, output_blocks;  // of 32 channels
  float* partials;
  Tiling tiling;
};

struct Shared {
  uint32_t inputs, grads;                                                   // addresses of the rings
  uint32_t input_copied, input_ready, input_empty, grad_ready, grad_empty;  // barriers, one a stage
};

// The planes begin_z - 1 .. end_z of a piece, both tensors; those outside of the volume arrive as zeros.
__device__ __forceinline__ void copy_planes(const GradTask& task, const Shared& shared, const CUtensorMap* map,
                                            int channel, int outputs, int first, int stride) {
  RingPosition<kInputRing> input;
  RingPosition<kGradRing> grad;
  for (int index = first; index < task.tiling.pieces(); index += stride) {
    const Piece piece = task.tiling.piece(index);
    for (int z = piece.begin_z - 1; z <= piece.end_z; ++z) {
      const BoxCorner grad_corner{32 * outputs, piece.x, piece.y - 1, z, piece.n};
      const uint32_t grad_ready = shared.grad_ready + 8 * grad.stage;
      barrier_wait(shared.grad_empty + 8 * grad.stage, grad.parity ^ 1);
      barrier_expect(grad_ready, grad.stage == 0 ? 2 * kGradBytes : kGradBytes);
      copy_box(shared.grads + grad.stage * kGradBytes, &task.grad, grad_ready, grad_corner);
      if (grad.stage == 0) copy_box(shared.grads + kGradRing * kGradBytes, &task.grad, grad_ready, grad_corner);
      grad.advance();
      barrier_wait(shared.input_empty + 8 * input.stage, input.parity ^ 1);
      barrier_expect(shared.input_copied + 8 * input.stage, kPlaneBytes);
      copy_box(shared.inputs + input.stage * kPlanePitch, map, shared.input_copied + 8 * input.stage,
               {channel, piece.x - 1, piece.y - 1, z, piece.n});
      input.advance();
    }
  }
}

__device__ __forceinline__ void transform_planes(const GradTask& task, const Shared& shared, const Prologue& prologue,
                                                 int channel, int first, int stride) {
  RingPosition<kInputRing> at;
  for (int index = first; index < task.tiling.pieces(); index += stride) {
    const Piece piece = task.tiling.piece(index);
    const PlaneTransform<kConsumers + 32> transform(prologue, piece.n, channel);  // the first warp after those copies
    for (int z = piece.begin_z - 1; z <= piece.end_z; ++z) {
      barrier_wait(shared.input_copied + 8 * at.stage, at.parity);
      if (z >= 0 && z < task.tiling.z)
        transform.apply(shared.inputs + at.stage * kPlanePitch, piece.y, piece.x, task.tiling.y, task.tiling.x);
      release_plane(shared.input_ready + 8 * at.stage);
      at.advance();
    }
  }
}

// One of the three warpgroups. The planes of a piece are numbered from the block's first on: number % ring is the
// stage.
template <int kGroup>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Tiling& tiling, const Shared& shared) : tiling_(tiling), shared_(shared) {
#pragma unroll
    for (int i = 0; i < 48; ++i) pairs_[i] = others_[i] = 0;
  }
  __device__ __forceinline__ void run(int first, int stride) {
    for (int index = first; index < tiling_.pieces(); index += stride) {
      const Piece piece = tiling_.piece(index);
      if (kGroup == 0) {
        grad(-1);  // it is released like the others, so someone must have waited for it: its stage is filled again
        if (piece.begin_z == 0) add_plane_before();
      }
      for (int z = piece.begin_z; z < piece.end_z; ++z) add_plane(z - piece.begin_z, piece.y == 0);
      release_rest(piece.end_z - piece.begin_z);
      planes_before_ += piece.end_z - piece.begin_z + 2;
    }
    pin(pairs_);
    pin(others_);
  }
  __device__ __forceinline__ void store(float* partial) const {  // [tap][output][input]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int half = warp % 4 / 2, output = warp % 2 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < 12; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float* at = partial + (j / 4 * 32 + output + 8 * h) * 32 + j % 4 * 8 + lane % 4 * 2;
        const int i = 4 * j + 2 * h;
        put(at + (kGroup * 9 + (2 - half) * 3) * 1024, pairs_[i], pairs_[i + 1]);
        if (kGroup == 0) put(at + (2 - half) * 9 * 1024, others_[i], others_[i + 1]);
        if (kGroup == 1 && half == 0) put(at, others_[i], others_[i + 1]);
      }
  }

 private:
  static __device__ __forceinline__ void put(float* at, float a, float b) {
    *reinterpret_cast<float2*>(at) = make_float2(a, b);
  }
  // Address of plane `k` of the piece, which begins with plane -1, when it is there.
  __device__ __forceinline__ uint32_t input(int k) const {
    const int number = planes_before_ + k + 1, stage = number % kInputRing;
    barrier_wait(shared_.input_ready + 8 * stage, (number / kInputRing) & 1);
    return shared_.inputs + stage * kPlanePitch;
  }
  __device__ __forceinline__ uint32_t grad(int k) const {
    const int number = planes_before_ + k + 1, stage = number % kGradRing;
    barrier_wait(shared_.grad_ready + 8 * stage, (number / kGradRing) & 1);
    return shared_.grads + stage * kGradBytes;
  }
  __device__ __forceinline__ void release_input(int k) const {
    barrier_arrive(shared_.input_empty + 8 * ((planes_before_ + k + 1) % kInputRing));
  }
  __device__ __forceinline__ void release_grad(int k) const {
    barrier_arrive(shared_.grad_empty + 8 * ((planes_before_ + k + 1) % kGradRing));
  }
  static __device__ __forceinline__ void add_row(float (&sums)[48], uint32_t grad, uint32_t to_second_grad,
                                                 uint32_t input) {
    multiply_add<Summed::kAcrossRows>(sums, operand(grad, to_second_grad, 512), operand(input, 64, 512));
  }
  __device__ __forceinline__ void add_plane_before() {
    const uint32_t before = grad(-1), x = input(0);
    grad(0);
    pin(others_);
    products_begin();
#pragma unroll
    for (int row = 0; row < 16; ++row) add_row(others_, before + (row + 1) * 1024, kGradBytes, x + row * kHalo * 64);
    products_commit();
  }
  __device__ __forceinline__ void add_plane(int k, bool at_border) {
    const uint32_t x = input(k + kGroup - 1), other_x = kGroup == 0 ? input(k + 1) : kGroup == 1 ? input(k - 1) : 0;
    const uint32_t dy = grad(k);
    if (kGroup == 0) grad(k + 1);
    pin(pairs_);
    pin(others_);
    products_begin();
    if (at_border) add_row(pairs_, dy, 1024, x + kHalo * 64);
#pragma unroll
    for (int row = 0; row < 16; ++row) {
      add_row(pairs_, dy + (row + 1) * 1024, 1024, x + (row + 2) * kHalo * 64);
      if (kGroup < 2)
        add_row(others_, dy + (row + 1) * 1024, kGroup == 0 ? kGradBytes : 1024, other_x + row * kHalo * 64);
    }
    products_commit();
    products_wait<1>();  // those of the plane before are done, and what no later plane reads is free
    if (threadIdx.x % 128 == 0) {
      release_grad(k - 1);
      if (k > 0) release_input(k - 2);
    }
  }
  __device__ __forceinline__ void release_rest(int planes) const {
    products_wait<0>();
    if (threadIdx.x % 128 != 0) return;
    for (int k = planes - 1; k <= planes; ++k) release_grad(k);
    for (int k = planes - 2; k <= planes; ++k) release_input(k);
  }

  const Tiling& tiling_;
  const Shared& shared_;
  int planes_before_ = 0;
  float pairs_[48], others_[48];
};

template <int kGroup>
__device__ __forceinline__ void consume(const GradTask& task, const Shared& shared, int first, int stride) {
  Consumer<kGroup> consumer(task.tiling, shared);
  consumer.run(first, stride);
  consumer.store(task.partials + static_cast<int64_t>(blockIdx.x) * kPartial);
}

template <bool kPrologue>
constexpr int kThreads = kConsumers + (kPrologue ? 256 : 128);

template <bool kPrologue>
__global__ void __launch_bounds__(kThreads<kPrologue>, 1)
    conv3d_weight_gradient_kernel(const __grid_constant__ GradTask task) {
  extern __shared__ uint8_t memory[];
  __shared__ __align__(8) uint64_t barriers[3 * kInputRing + 2 * kGradRing];
  Shared shared;
  shared.inputs = (shared_address(memory) + 1023) & ~1023u;
  shared.grads = shared.inputs + kInputRing * kPlanePitch;
  shared.input_ready = shared_address(barriers);
  shared.input_empty = shared.input_ready + 8 * kInputRing;
  shared.grad_ready = shared.input_empty + 8 * kInputRing;
  shared.grad_empty = shared.grad_ready + 8 * kGradRing;
  shared.input_copied = kPrologue ? shared.grad_empty + 8 * kGradRing : shared.input_ready;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kInputRing; ++i) {
      barrier_init(shared.input_ready + 8 * i, kPrologue ? kPrologueWarps : 1);
      barrier_init(shared.input_empty + 8 * i, kGroups);
      if (kPrologue) barrier_init(shared.input_copied + 8 * i, 1);
    }
    for (int i = 0; i < kGradRing; ++i) {
      barrier_init(shared.grad_ready + 8 * i, 1);
      barrier_init(shared.grad_empty + 8 * i, kGroups);
    }
    barrier_init_done();
  }
  __syncthreads();
  const int sets = task.input_blocks * task.output_blocks, set = blockIdx.x % sets;
  const int inputs = set % task.input_blocks, outputs = set / task.input_blocks;
  const int first = blockIdx.x / sets, stride = gridDim.x / sets;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group >= kGroups) {
    fewer_registers<kPrologue ? 48 : 40>();
    const int tensor = inputs >= task.first_input_blocks, channel = 32 * (inputs - tensor * task.first_input_blocks);
    constexpr int kTransformers = kConsumers + 32;  // the first warp copies
    if (threadIdx.x == kConsumers)
      copy_planes(task, shared, &task.input[tensor], channel, outputs, first, stride);
    else if (kPrologue && threadIdx.x >= kTransformers)
      transform_planes(task, shared, task.prologue[tensor], channel, first, stride);
  } else {
    more_registers<kPrologue ? 128 : 152>();
    if (group == 0)
      consume<0>(task, shared, first, stride);
    else if (group == 1)
      consume<1>(task, shared, first, stride);
    else
      consume<2>(task, shared, first, stride);
  }
}

// Sums the partials of the blocks of one set of channels, in a fixed order. Eight parts of 32 x 4 sums a block.
__global__ void __launch_bounds__(256)
    reduce_kernel(const float* __restrict__ partials, float* __restrict__ dw, int input_blocks, int sets, int blocks) {
  __shared__ float4 parts[8][32];
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32, set = blockIdx.y;
  const int element = (blockIdx.x * 32 + lane) * 4;
  float4 sum = make_float4(0, 0, 0, 0);
  const auto add = [&sum](const float4& v) { sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w); };
#pragma unroll 4
  for (int block = set + part * sets; block < blocks; block += 8 * sets)
    add(*reinterpret_cast<const float4*>(partials + static_cast<int64_t>(block) * kPartial + element));
  parts[part][lane] = sum;
  __syncthreads();
  if (part != 0) return;
  for (int i = 1; i < 8; ++i) add(parts[i][lane]);
  const int tap = element / 1024, output = set / input_blocks * 32 + element / 32 % 32;
  const int input = set % input_blocks * 32 + element % 32;
  *reinterpret_cast<float4*>(dw + (static_cast<int64_t>(output) * 27 + tap) * (32 * input_blocks) + input) = sum;
}

int sets_of(const Conv3d& conv) {
  VOX_ASSERT(conv.input[0].channels % 32 == 0 && conv.input[1].channels % 32 == 0 && conv.input[0].channels > 0);
  VOX_ASSERT(conv.output[0].channels % 32 == 0 && conv.output[0].channels > 0 && conv.output[1].channels == 0);
  return static_cast<int>(conv.in() / 32 * (conv.out() / 32));
}
int blocks_per_set(const Conv3d& conv) {
  return std::max(1, multiprocessors() / sets_of(conv));
}

template <bool kPrologue>
void launch(const GradTask& task, int blocks, Stream stream) {
  allow_shared_memory<conv3d_weight_gradient_kernel<kPrologue>>(kSharedBytes);
  conv3d_weight_gradient_kernel<kPrologue><<<blocks, kThreads<kPrologue>, kSharedBytes, stream>>>(task);
  check_launch("conv3d_weight_gradient");
}

}  // namespace

int64_t conv3d_workspace(const Conv3d& conv) {
  return int64_t{blocks_per_set(conv)} * sets_of(conv) * kPartial * static_cast<int64_t>(sizeof(float));
}

double conv3d_weight_gradient_use(const Conv3d& conv) {
  const int blocks = blocks_per_set(conv);
  return use_of_columns(columns_of(conv, blocks, kOverlap), blocks, kOverlap);
}

void conv3d_weight_gradient(const Conv3d& conv, float* dw, void* workspace, Stream stream) {
  const int sets = sets_of(conv), per_set = blocks_per_set(conv);
  VOX_ASSERT(is_aligned(dw) && is_aligned(workspace));
  GradTask task{};
  task.tiling = columns_of(conv, per_set, kOverlap);
  for (int i = 0; i < 2; ++i) {
    const ConvInput& input = conv.input[i];
    if (input.channels > 0) task.input[i] = tensor_map(input.x, input.channels, task.tiling, kHalo, kHalo);
    task.prologue[i] = prologue_of(input);
  }
  task.grad = tensor_map(conv.output[0].y, conv.output[0].channels, task.tiling, kHalo, 16);
  task.first_input_blocks = static_cast<int>(conv.input[0].channels / 32);
  task.input_blocks = static_cast<int>(conv.in() / 32);
  task.output_blocks = static_cast<int>(conv.out() / 32);
  task.partials = static_cast<float*>(workspace);
  const int blocks = std::min(per_set, task.tiling.pieces()) * sets;
  const bool prologue = task.prologue[0].scale != nullptr || task.prologue[1].scale != nullptr;
  prologue ? launch<true>(task, blocks, stream) : launch<false>(task, blocks, stream);
  reduce_kernel<<<dim3(kPartial / 128, static_cast<unsigned>(sets)), 256, 0, stream>>>(task.partials, dw,
                                                                                       task.input_blocks, sets, blocks);
  check_launch("conv3d_weight_gradient's sum");
}

}  // namespace vox::cuda
