// Forward and data gradient. A block owns a column of 16 x 16 voxels (y, x) and 32 output channels, and marches along
// z. Each input plane (its tile with a halo of one voxel, 32 channels) is copied into shared memory ONCE. For each of
// the 9 taps within a plane and each 16 channels, one product of 64 x 96 multiplies 64 voxels (8 x 8, read from the
// shifted tile by an operand's address alone) by the weights of the three taps along z side by side: the accumulator's
// thirds are output planes z - 1, z and z + 1. After a plane one third is complete, is stored, and begins anew. Three
// taps at once make the voxels cheap: 40 cycles of shared memory against 48 of tensor core for a product; one tap at a
// time would need 24 against 16. Four warpgroups have 8 x 8 voxels each.
//
// The weights stay in shared memory, which has room for those of 64 input channels. Of 128 channels two blocks have 64
// each, with the same voxels; of every finished plane they trade halves of their sums, and each stores the other half.
#include "kernels/hopper/forward.cuh"

namespace vox::cuda {
namespace {

constexpr int kOverlap = 2;  // planes that a chunk along z reads beyond its own

enum class Left { kNothing, kMoments, kNormSums };  // beside the result itself
template <class Plan, Left kLeft>
using BlockSums = std::conditional_t<kLeft == Left::kNormSums, BlockNormSums<Plan::kConsumerWarps>,
                                     BlockMoments<kLeft == Left::kMoments ? Plan::kConsumerWarps : 1>>;

// Warpgroups that multiply at once are done at once, and the tensor core waits while all of them store. Where storing
// takes long they multiply one after another instead, and each stores while the others multiply. On an H200: a data
// gradient with sums in 0.330 ms instead of 0.348 (2 x 128^3, 32 to 32 channels), 128 to 64 channels with norm and
// moments in 0.338 ms instead of 0.360 (2 x 64^3). Up to 64 channels moments alone gain nothing by it.
template <class Plan, Left kLeft>
constexpr bool kOneByOne = kLeft == Left::kNormSums || (kLeft == Left::kMoments && Plan::kRanks == 2);

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

template <class Plan, Left kLeft>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const ForwardTask& task, const ForwardBlock<Plan>& block,
                                      const BlockSums<Plan, kLeft>& shared)
      : task_(task),
        block_(block),
        shared_(shared),
        warp_(__shfl_sync(~0u, threadIdx.x / 32, 0)),
        patch_y_(warp_ / 8 * 8),
        patch_x_(warp_ / 4 % 2 * 8),
        weights_(operand(block.weights, 16, 512)) {}

  // All planes of a piece; afterwards moments() or norm_sums() has the piece's.
  template <class Trade>
  __device__ __forceinline__ void march(const Piece& piece, Trade&& trade) {
    const int first_z = max(piece.begin_z - 1, 0), last_z = min(piece.end_z, task_.tiling.z - 1);
    Destination to(task_, piece, block_.outputs, patch_y_ + 2 * (warp_ % 4), patch_x_ + threadIdx.x % 32 / 4,
                   first_z - 1);
#pragma unroll
    for (int i = 0; i < 48; ++i) sums_[i] = 0;
    if (kLeft == Left::kMoments) moments_.clear();
    if (kLeft == Left::kNormSums) norm_sums_.clear();
    int turn = 0;
    for (int z = first_z; z <= last_z; ++z) {
      const int done = z - piece.begin_z;  // output planes with this one; the others belong to the chunk before
      if constexpr (Plan::kTurns) {
        add_plane<0>(done, to, trade);
        turn = 1;
        if (++z > last_z) break;
        add_plane<1>(done + 1, to, trade);
        turn = 2;
        if (++z > last_z) break;
        add_plane<2>(done + 2, to, trade);
        turn = 0;
      } else {
        add_plane<0>(done, to, trade);
      }
    }
    if (piece.end_z < task_.tiling.z) return;
    fetch(to, true);
    const bool only = piece.end_z - piece.begin_z == 1;
    if (turn == 0) store_plane<0>(to, only, trade);  // the last: no plane follows that would complete it
    if (Plan::kTurns && turn == 1) store_plane<1>(to, only, trade);
    if (Plan::kTurns && turn == 2) store_plane<2>(to, only, trade);
  }
  __device__ __forceinline__ const ThreadMoments& moments() const { return moments_; }
  __device__ __forceinline__ const ThreadNormSums& norm_sums() const { return norm_sums_; }
  __device__ __forceinline__ int warp() const { return warp_; }

 private:
  // An input plane completes the output plane before it, of which the sums are in the third `kTurn`.
  template <int kTurn, class Trade>
  __device__ __forceinline__ void add_plane(int done, Destination& to, Trade&& trade) {
    fetch(to, done > 0);
    multiply_plane<kTurn>();
    if (done > 0) store_plane<kTurn>(to, done == 1, trade);
    to.y += to.plane;
    if constexpr (!Plan::kTurns) {
#pragma unroll
      for (int i = 0; i < 32; ++i) sums_[i] = sums_[i + 16];
    }
    constexpr int kNext = Plan::kTurns ? 16 * kTurn : 32;
#pragma unroll
    for (int i = 0; i < 16; ++i) sums_[kNext + i] = 0;
  }
  // All channels of an input plane, all 27 taps.
  template <int kTurn>
  __device__ __forceinline__ void multiply_plane() {
    constexpr int kOrder = (3 - kTurn) % 3 * (kTapBytes / 3);  // 2 1 0 for turn 0, 0 2 1 for turn 1, 1 0 2 for turn 2
    const int first_stage = at_.stage;
    const uint32_t patch = (patch_y_ * kHalo + patch_x_) * 64;
#pragma unroll
    for (int i = 0; i < Plan::kInputBlocks; ++i) {
      barrier_wait(block_.ready + 8 * at_.stage, at_.parity);
      const uint64_t voxels = operand(block_.plane(at_.stage) + patch, 16, kHalo * 64);
      if (i == 0) {
        if (kOneByOne<Plan, kLeft>) wait_for_turn(warp_ / 4);
        pin(sums_);
        products_begin();
      }
#pragma unroll
      for (int tap = 0; tap < 9; ++tap)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          multiply_add<Summed::kAlongRows>(sums_, moved(voxels, (tap / 3 * kHalo + tap % 3) * 64 + half * 32),
                                           moved(weights_, (i * 9 + tap) * Plan::kTapPitch + kOrder + half * 32));
      at_.advance();
    }
    products_commit();
    if (kOneByOne<Plan, kLeft>) give_turn((warp_ / 4 + 1) % (Plan::kConsumerWarps / 4));
    products_wait<0>();
    pin(sums_);
    if (threadIdx.x % 128 == 0) {
#pragma unroll
      for (int i = 0; i < Plan::kInputBlocks; ++i) barrier_arrive(block_.empty + 8 * ((first_stage + i) % Plan::kRing));
    }
  }
  // What the norm of a plane's results read: asked for before the products that it takes longer to arrive than.
  __device__ __forceinline__ void fetch(const Destination& to, bool wanted) {
    if (kLeft != Left::kNormSums || !wanted || !block_.sums_wanted(task_)) return;
    const int64_t x = block_.norm(task_).x_after_y;
    if constexpr (Plan::kRanks == 1) {
      if (to.inside[0]) x_[0] = load_ahead(to.y, x);
      if (to.inside[1]) x_[1] = load_ahead(to.y + to.row, x);
    } else {
      const bool second = block_.rank == 1;
      if (second ? to.inside[1] : to.inside[0]) x_[0] = load_ahead(second ? to.y + to.row : to.y, x);
    }
  }
  // A finished plane. `early`: it is the piece's first.
  template <int kTurn, class Trade>
  __device__ __forceinline__ void store_plane(const Destination& to, bool early, Trade&& trade) {
    float values[2][8];
#pragma unroll
    for (int k = 0; k < 8; ++k)
#pragma unroll
      for (int h = 0; h < 2; ++h) values[h][k] = sums_[16 * kTurn + k / 2 * 4 + 2 * h + k % 2];
    if constexpr (Plan::kRanks == 1) {
      store(to.y, values[0], x_[0], to.inside[0], early);
      store(to.y + to.row, values[1], x_[1], to.inside[1], early);
    } else {
      const bool second = block_.rank == 1;
      float mine[8], theirs[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        mine[k] = second ? values[1][k] : values[0][k];
        theirs[k] = second ? values[0][k] : values[1][k];
      }
      trade(theirs);
#pragma unroll
      for (int k = 0; k < 8; ++k) mine[k] += theirs[k];
      store(second ? to.y + to.row : to.y, mine, x_[0], second ? to.inside[1] : to.inside[0], early);
    }
  }
  __device__ __forceinline__ void store(Bf16* to, const float (&values)[8], const uint4& x, bool inside, bool early) {
    if (!inside) return;
    const uint4 rounded = pack(values);
    *reinterpret_cast<uint4*>(to) = rounded;
    if (kLeft == Left::kMoments) moments_.add(values, early);
    if constexpr (kLeft == Left::kNormSums) {
      if (block_.sums_wanted(task_))
        norm_sums_.add(rounded, x, shared_.coefficients, 8 * (threadIdx.x % 4), block_.norm(task_).slope);
    }
  }

  const ForwardTask& task_;
  const ForwardBlock<Plan>& block_;
  const BlockSums<Plan, kLeft>& shared_;
  const int warp_, patch_y_, patch_x_;
  const uint64_t weights_;
  typename ForwardBlock<Plan>::Position at_;
  float sums_[48];
  ThreadMoments moments_;
  ThreadNormSums norm_sums_;
  uint4 x_[2];
};

// Around the march over a piece. Two barriers: what one piece fetches or leaves is read before the next overwrites it.
template <class Plan, class Sums>
__device__ __forceinline__ void begin_norm_sums(const ForwardTask& task, const ForwardBlock<Plan>& block, int index,
                                                Sums& sums) {
  if (!block.sums_wanted(task)) return;
  sums.fetch(block.norm(task), block.first_of(task, task.tiling.piece(index).n));
  sync_consumers<Plan::kConsumers>();
}
template <class Plan, class Consumer, class Sums>
__device__ __forceinline__ void store_norm_sums(const ForwardTask& task, const ForwardBlock<Plan>& block, int index,
                                                const Consumer& consumer, Sums& sums) {
  if (!block.sums_wanted(task)) return;
  const int lane = threadIdx.x % 32, channels = task.output_channels[block.tensor(task)];
  sums.put(consumer.norm_sums(), consumer.warp(), lane);
  sync_consumers<Plan::kConsumers>();
  if (consumer.warp() != 0) return;
  const NormSums& norm = block.norm(task);
  const int64_t row = static_cast<int64_t>(index) * Plan::kRanks + block.rank;
  const float rstd = norm.rstd[block.first_of(task, task.tiling.piece(index).n) + lane];
  sums.store(norm.rows + row * 2 * channels + block.channel(task), channels, rstd, lane);
}

template <class Plan, Left kLeft, class Trade>
__device__ __forceinline__ void consume(const ForwardTask& task, const ForwardBlock<Plan>& block,
                                        BlockSums<Plan, kLeft>& sums, Trade&& trade) {
  Consumer<Plan, kLeft> consumer(task, block, sums);
  if (kOneByOne<Plan, kLeft> && consumer.warp() / 4 == Plan::kConsumerWarps / 4 - 1) give_turn(0);
  barrier_wait(block.weights_ready, 0);
  int set = 0;
  for (int index = block.first; index < task.tiling.pieces(); index += block.stride) {
    if constexpr (kLeft == Left::kNormSums) begin_norm_sums(task, block, index, sums);
    consumer.march(task.tiling.piece(index), trade);
    if constexpr (kLeft == Left::kMoments) {
      const int lane = threadIdx.x % 32;
      sums.put(consumer.moments(), set, consumer.warp(), lane);
      sync_consumers<Plan::kConsumers>();
      const int64_t row = static_cast<int64_t>(index) * Plan::kRanks + block.rank;
      if (consumer.warp() == 0) sums.store(task.moments + row * 3 * task.out + 32 * block.outputs, task.out, set, lane);
      set ^= 1;
    }
    if constexpr (kLeft == Left::kNormSums) store_norm_sums(task, block, index, consumer, sums);
  }
  if (kOneByOne<Plan, kLeft> && consumer.warp() < 4) wait_for_turn(0);  // the one that the last gave
}

template <class Plan, bool kPrologue>
__device__ __forceinline__ ForwardBlock<Plan> make_block(const ForwardTask& task, uint32_t memory, uint32_t barriers) {
  constexpr int kRing = Plan::kRing;
  ForwardBlock<Plan> b;
  b.planes = memory;
  b.weights = memory + Plan::kWeightsAt;
  b.ready = barriers;
  b.empty = b.ready + 8 * kRing;
  b.copied = kPrologue ? b.ready + 16 * kRing : b.ready;
  b.weights_ready = b.ready + 24 * kRing;
  const int output_blocks = task.out / 32, group = blockIdx.x / Plan::kRanks, groups = gridDim.x / Plan::kRanks;
  b.rank = blockIdx.x % Plan::kRanks;
  b.outputs = group % output_blocks;
  b.first = group / output_blocks;
  b.stride = groups / output_blocks;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRing; ++i) {
      barrier_init(b.ready + 8 * i, kPrologue ? kPrologueWarps : 1);
      barrier_init(b.empty + 8 * i, Plan::kConsumerWarps / 4);
      if (kPrologue) barrier_init(b.copied + 8 * i, 1);
    }
    barrier_init(b.weights_ready, 1);
  }
  return b;
}

template <class Plan, bool kPrologue>
constexpr int kThreads = Plan::kConsumers + (kPrologue ? 256 : 128);

template <class Plan, Left kLeft, bool kPrologue>
__global__ void __launch_bounds__(kThreads<Plan, kPrologue>, 1)
    conv3d_forward_kernel(const __grid_constant__ ForwardTask task) {
  using Exchange = PairExchange<Plan::kConsumerWarps>;
  constexpr int kBarriers = 3 * Plan::kRing + 1;
  extern __shared__ uint8_t memory[];
  __shared__ __align__(8) uint64_t barriers[kBarriers + (Plan::kRanks == 2 ? Exchange::kBarriers : 0)];
  __shared__ BlockSums<Plan, kLeft> block_sums;
  const uint32_t aligned = (shared_address(memory) + 1023) & ~1023u;
  const ForwardBlock<Plan> block = make_block<Plan, kPrologue>(task, aligned, shared_address(barriers));
  Exchange exchange(aligned + Plan::kSlotsAt, shared_address(barriers + kBarriers));
  if (threadIdx.x == 0) {
    if (Plan::kRanks == 2) exchange.init();
    barrier_init_done();
  }
  Plan::kRanks == 2 ? sync_pair() : __syncthreads();
  if (__shfl_sync(~0u, threadIdx.x / 32, 0) >= Plan::kConsumerWarps) {
    fewer_registers<kPrologue ? 48 : 24>();
    constexpr int kTransformers = Plan::kConsumers + 32;  // the first warp copies
    if (threadIdx.x == Plan::kConsumers) {
      block.copy_weights(task);
      block.copy_planes(task);
    } else if (kPrologue && threadIdx.x >= kTransformers) {
      block.transform_planes(task);
    }
  } else {
    more_registers<kPrologue ? 96 : 112>();
    consume<Plan, kLeft>(task, block, block_sums, [&](float(&values)[8]) { exchange.trade(values, threadIdx.x / 32); });
  }
  if (Plan::kRanks == 2) sync_pair();  // the other one may still write here
}

int ranks(const Conv3d& conv) {
  return conv.in() > 64 ? 2 : 1;
}
int groups_per_output(const Conv3d& conv) {
  return std::max(1, multiprocessors() / ranks(conv) / static_cast<int>(conv.out() / 32));
}
Tiling forward_tiling(const Conv3d& conv) {
  return columns_of(conv, groups_per_output(conv), kOverlap);
}

template <class Plan, Left kLeft, bool kPrologue>
void launch(const ForwardTask& task, int blocks, Stream stream) {
  constexpr auto kKernel = conv3d_forward_kernel<Plan, kLeft, kPrologue>;
  allow_shared_memory<kKernel>(Plan::kBytes);
  cudaLaunchAttribute pairs;
  pairs.id = cudaLaunchAttributeClusterDimension;
  pairs.val.clusterDim = {Plan::kRanks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads<Plan, kPrologue>);
  config.dynamicSmemBytes = Plan::kBytes;
  config.stream = stream;
  config.attrs = &pairs;
  config.numAttrs = Plan::kRanks == 2 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kKernel, task), "conv3d_forward");
}
template <int kInputs, int kSharers>
void launch(const ForwardTask& task, int groups, Stream stream) {
  using Plan = ForwardPlan<kInputs, kSharers>;
  const bool prologue = task.prologue[0].scale != nullptr || task.prologue[1].scale != nullptr;
  const int blocks = groups * kSharers;
  if (task.norm[0].rows != nullptr || task.norm[1].rows != nullptr) {
    VOX_ASSERT(!prologue && task.moments == nullptr);  // gradients come in as they are
    launch<Plan, Left::kNormSums, false>(task, blocks, stream);
  } else if (task.moments != nullptr) {
    prologue ? launch<Plan, Left::kMoments, true>(task, blocks, stream)
             : launch<Plan, Left::kMoments, false>(task, blocks, stream);
  } else {
    prologue ? launch<Plan, Left::kNothing, true>(task, blocks, stream)
             : launch<Plan, Left::kNothing, false>(task, blocks, stream);
  }
}

}  // namespace

int64_t conv3d_moment_rows(const Conv3d& conv) {
  return int64_t{forward_tiling(conv).per_sample()} * ranks(conv);
}

double conv3d_forward_use(const Conv3d& conv) {
  return use_of_columns(forward_tiling(conv), groups_per_output(conv), kOverlap);
}

void conv3d_forward(const Conv3d& conv, const void* packed, float* moments, Stream stream) {
  VOX_ASSERT(conv.in() == 32 || conv.in() == 64 || conv.in() == 128);
  VOX_ASSERT(conv.input[0].channels % 32 == 0 && conv.input[0].channels > 0);
  VOX_ASSERT(conv.output[0].channels % 32 == 0 && conv.output[1].channels % 32 == 0 && conv.output[0].channels > 0);
  VOX_ASSERT(is_aligned(packed) && is_aligned(conv.output[0].y) && is_aligned(conv.output[1].y));
  ForwardTask task{};
  task.tiling = forward_tiling(conv);
  for (int i = 0; i < 2; ++i) {
    const ConvInput& input = conv.input[i];
    if (input.channels > 0) task.input[i] = tensor_map(input.x, input.channels, task.tiling, kHalo, kHalo);
    task.prologue[i] = prologue_of(input);
    task.output[i] = static_cast<Bf16*>(conv.output[i].y);
    task.output_channels[i] = static_cast<int>(conv.output[i].channels);
    task.norm[i] = norm_sums_of(conv.output[i]);
  }
  task.input_blocks = static_cast<int>(conv.input[0].channels / 32);
  task.output_blocks = static_cast<int>(conv.output[0].channels / 32);
  task.out = static_cast<int>(conv.out());
  task.weights = static_cast<const uint8_t*>(packed);
  task.moments = moments;
  const int groups = std::min(groups_per_output(conv), task.tiling.pieces()) * (task.out / 32);
  switch (conv.in()) {
    case 32:
      return launch<1, 1>(task, groups, stream);
    case 64:
      return launch<2, 1>(task, groups, stream);
    default:
      return launch<2, 2>(task, groups, stream);
  }
}

}  // namespace vox::cuda
