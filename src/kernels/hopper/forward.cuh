// What a block of the forward kernel works on and how its shared memory is divided. See conv3d_forward.cu.
#pragma once

#include "kernels/hopper/moments.cuh"
#include "kernels/hopper/norm_sums.cuh"
#include "kernels/hopper/pair.cuh"
#include "kernels/hopper/prologue.cuh"
#include "kernels/hopper/tiling.cuh"

namespace vox::cuda {

constexpr int kTapBytes = 96 * 64;           // weights of a tap in the plane: 3 along z, 32 outputs, 32 inputs
constexpr int kWeightBytes = 9 * kTapBytes;  // of 32 outputs and 32 inputs

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
  NormSums norm[2];
};

// kInputs: 32-channel blocks of the input that one block multiplies; kSharers: blocks that share a voxel's channels.
template <int kInputs, int kSharers>
struct ForwardPlan {
  static constexpr int kInputBlocks = kInputs, kRanks = kSharers;
  static constexpr int kConsumerWarps = 16, kConsumers = 32 * kConsumerWarps;
  // Thirds of the accumulator take turns where there is room for the weights in all three orders of the taps along z
  // (2 1 0, 0 2 1 and 1 0 2: all in 2 1 0 2 1); else they move up, which is 48 instructions a plane.
  static constexpr bool kTurns = kInputs == 1;
  static constexpr int kTapPitch = kTurns ? kTapBytes / 3 * 5 : kTapBytes;
  static constexpr int kRing = kRanks == 2 ? 4 : 5;  // planes that there is room for
  static constexpr int kWeightsAt = kRing * kPlanePitch, kSlotsAt = kWeightsAt + kInputs * 9 * kTapPitch;
  static constexpr int kBytes = kSlotsAt + (kRanks == 2 ? PairExchange<kConsumerWarps>::kBytes : 0) + 1024;
};

// Addresses in shared memory, and the block's part of the work.
template <class Plan>
struct ForwardBlock {
  uint32_t planes, weights;
  uint32_t copied, ready, empty, weights_ready;  // barriers, the first three one a stage
  int outputs;                                   // which 32 output channels
  int rank;                                      // which part of the input channels
  int first, stride;                             // pieces
  using Position = RingPosition<Plan::kRing>;

  __device__ __forceinline__ uint32_t plane(int stage) const { return planes + stage * kPlanePitch; }
  // Of the output: its tensor, and the first of the block's channels there and in the tensor's [n][channels].
  __device__ __forceinline__ int tensor(const ForwardTask& task) const { return outputs >= task.output_blocks; }
  __device__ __forceinline__ int channel(const ForwardTask& task) const {
    return 32 * (outputs - tensor(task) * task.output_blocks);
  }
  __device__ __forceinline__ int64_t first_of(const ForwardTask& task, int n) const {
    return static_cast<int64_t>(n) * task.output_channels[tensor(task)] + channel(task);
  }
  __device__ __forceinline__ const NormSums& norm(const ForwardTask& task) const { return task.norm[tensor(task)]; }
  __device__ __forceinline__ bool sums_wanted(const ForwardTask& task) const { return norm(task).rows != nullptr; }

  // Runs f(piece, z, tensor, channel) in the order in which planes go through the ring.
  template <class F>
  __device__ __forceinline__ void each_plane(const ForwardTask& task, F&& f) const {
    for (int index = first; index < task.tiling.pieces(); index += stride) {
      const Piece piece = task.tiling.piece(index);
      const int last = min(piece.end_z, task.tiling.z - 1);
      for (int z = max(piece.begin_z - 1, 0); z <= last; ++z)
        for (int i = 0; i < Plan::kInputBlocks; ++i) {
          const int block = (Plan::kRanks > 1 ? rank * Plan::kInputBlocks : 0) + i, tensor = block >= task.input_blocks;
          f(piece, z, tensor, 32 * (block - tensor * task.input_blocks));
        }
    }
  }
  __device__ __forceinline__ void copy_weights(const ForwardTask& task) const {
    constexpr uint32_t kOwn = Plan::kInputBlocks * kWeightBytes, kAgain = kTapBytes / 3 * 2;
    const uint8_t* from = task.weights + (static_cast<int64_t>(outputs) * Plan::kRanks + rank) * kOwn;
    if constexpr (Plan::kTurns) {
      barrier_expect(weights_ready, kOwn + 9 * Plan::kInputBlocks * kAgain);
      for (int tap = 0; tap < 9 * Plan::kInputBlocks; ++tap) {
        const uint32_t to = weights + tap * Plan::kTapPitch;
        copy_bytes(to, from + tap * kTapBytes, kTapBytes, weights_ready);
        copy_bytes(to + kTapBytes, from + tap * kTapBytes, kAgain, weights_ready);
      }
    } else {
      barrier_expect(weights_ready, kOwn);
      copy_bytes(weights, from, kOwn, weights_ready);
    }
  }
  __device__ __forceinline__ void copy_planes(const ForwardTask& task) const {
    Position at;
    each_plane(task, [&](const Piece& piece, int z, int tensor, int channel) {
      barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
      barrier_expect(copied + 8 * at.stage, kPlaneBytes);
      copy_box(plane(at.stage), &task.input[tensor], copied + 8 * at.stage,
               {channel, piece.x - 1, piece.y - 1, z, piece.n});
      at.advance();
    });
  }
  __device__ __forceinline__ void transform_planes(const ForwardTask& task) const {
    Position at;
    each_plane(task, [&](const Piece& piece, int, int tensor, int channel) {
      // The first warp after the consumers copies.
      const PlaneTransform<Plan::kConsumers + 32> transform(task.prologue[tensor], piece.n, channel);
      barrier_wait(copied + 8 * at.stage, at.parity);
      transform.apply(plane(at.stage), piece.y, piece.x, task.tiling.y, task.tiling.x);
      release_plane(ready + 8 * at.stage);
      at.advance();
    });
  }
};

}  // namespace vox::cuda
