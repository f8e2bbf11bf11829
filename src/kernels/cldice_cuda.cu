#include "kernels/cldice_cuda.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda_device.cuh"
#include "kernels/mask_skeleton_cuda.h"

namespace vox {

using namespace cuda;

namespace {

constexpr int kThreads = 256;
constexpr int64_t kPartVoxels = 1280;      // at least, summed by a block
constexpr int64_t kGroupVoxels = 1 << 20;  // fewer do not fill a GPU
constexpr int kSums = 4;                   // of a volume
enum Sum { kPredictedInTarget, kPredicted, kTargetInPredicted, kTarget };

int64_t padded(int64_t count) {
  return (count + 3) / 4 * 4;
}

int64_t parts_of(int64_t voxels) {
  return std::clamp<int64_t>(voxels / kPartVoxels, 1, 1024);
}

struct Group {  // of volumes that are worked on together, and their memory
  int64_t volumes, voxels, parts;
  float *probability, *eroded[2], *middle, *state, *scratch;
  double* sums;    // [volume][part][sum]
  float* factors;  // [volume][2]: of the precision's gradient, see OuterGradient
  float* shares;   // [volume][2]: the loss with respect to precision, and to the sum of the target's skeleton within

  Group(float* workspace, int64_t volume_count, int64_t volume_voxels)
      : volumes(volume_count), voxels(volume_voxels), parts(parts_of(volume_voxels)) {
    const int64_t map = padded(volumes * voxels);
    const auto next = [&](int64_t floats) { return std::exchange(workspace, workspace + padded(floats)); };
    sums = reinterpret_cast<double*>(next(2 * volumes * parts * kSums));
    for (float** place : {&probability, &eroded[0], &eroded[1], &middle, &state, &scratch}) *place = next(map);
    factors = next(2 * volumes);
    shares = next(2 * volumes);
  }
  static int64_t floats(int64_t volumes, int64_t voxels) {
    return padded(2 * volumes * parts_of(voxels) * kSums) + 6 * padded(volumes * voxels) + 2 * padded(2 * volumes);
  }
};

int64_t group_volumes(const VolumeBatch& batch) {
  const int64_t voxels = std::max<int64_t>(1, batch.extent.voxels());
  const int64_t most = std::min(batch.volumes, most_volumes_cuda(batch.extent));
  return std::max<int64_t>(1, std::min(most, (kGroupVoxels + voxels - 1) / voxels));
}

struct Skeleton {  // of the volumes of a group
  const float* map;
  const uint32_t* bits = nullptr;  // in place of the map: see kernels/mask_skeleton_cuda.h
  unsigned x = 1, words = 1;
  __device__ float at(int64_t place) const {
    if (bits == nullptr) return map[place];
    const auto voxel = static_cast<unsigned>(place);  // grid_of() has seen to it that this is enough
    const unsigned row = voxel / x, column = voxel - row * x;
    return (bits[row * words + column / 32] >> column % 32 & 1) != 0 ? 1.0f : 0.0f;
  }
};

struct Valid {
  const float* map;
  int64_t first_volume, channels, voxels;
  __device__ float at(int64_t volume, int64_t voxel) const {
    return map == nullptr ? 1 : map[(first_volume + volume) / channels * voxels + voxel];
  }
};

// grid: parts, volumes. Voxels of a part follow one another in steps of all threads: the order is always the same.
struct Span {
  int64_t volume, begin, step;
};
__device__ __forceinline__ Span span_of() {
  return {blockIdx.y, int64_t{blockIdx.x} * kThreads + threadIdx.x, int64_t{gridDim.x} * kThreads};
}

__global__ void probabilities(float* out, const float* logits, Valid valid) {
  const Span span = span_of();
  for (int64_t i = span.begin; i < valid.voxels; i += span.step) {
    const int64_t at = span.volume * valid.voxels + i;
    out[at] = valid.at(span.volume, i) / (1 + expf(-logits[at]));
  }
}

__device__ __forceinline__ double sum_of_block(double value) {
  __shared__ double warps[kThreads / 32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (const double warp : warps) sum += warp;
  __syncthreads();
  return sum;
}

// Sums of a skeleton within the other map, and of all of it.
__global__ void __launch_bounds__(kThreads)
    skeleton_sums(double* sums, Skeleton skeleton, const float* other, Valid valid, int first_sum) {
  const Span span = span_of();
  float within = 0, all = 0;
  for (int64_t i = span.begin; i < valid.voxels; i += span.step) {
    const int64_t at = span.volume * valid.voxels + i;
    const float value = skeleton.at(at) * valid.at(span.volume, i);
    within += value * other[at];
    all += value;
  }
  const double sum_within = sum_of_block(within), sum_all = sum_of_block(all);
  if (threadIdx.x != 0) return;
  double* out = sums + (span.volume * gridDim.x + blockIdx.x) * kSums + first_sum;
  out[0] = sum_within;
  out[1] = sum_all;
}

// Sums of a volume over its parts, `count` of them from `first` on, plus `smooth`; a warp for each.
template <int kCount>
__device__ __forceinline__ void add_parts(double (&total)[kCount], const double* sums, int parts, int first,
                                          double smooth) {
  const int of = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const double* volume = sums + int64_t{blockIdx.x} * parts * kSums + first + of;
  double sum = 0;
  for (int part = lane; part < parts; part += 32) sum += volume[int64_t{part} * kSums];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (lane == 0) total[of] = sum + smooth;
  __syncthreads();
}

// The gradient of the precision alone: what the loss makes of it is known once the target's skeleton is.
__global__ void finish_precision(float* factors, const double* sums, int parts, double smooth) {
  __shared__ double total[2];
  add_parts(total, sums, parts, kPredictedInTarget, smooth);
  if (threadIdx.x != 0) return;
  const double within = total[0], all = total[1];
  factors[2 * blockIdx.x] = static_cast<float>(1 / all);
  factors[2 * blockIdx.x + 1] = static_cast<float>(-within / (all * all));
}

__global__ void finish(float* loss, float* shares, const double* sums, int parts, double smooth) {
  __shared__ double total[kSums];
  add_parts(total, sums, parts, 0, smooth);
  if (threadIdx.x != 0) return;
  const double precision = total[kPredictedInTarget] / total[kPredicted],
               recall = total[kTargetInPredicted] / total[kTarget];
  const double both = precision + recall;
  loss[blockIdx.x] = static_cast<float>(1 - 2 * precision * recall / both);
  shares[2 * blockIdx.x] = static_cast<float>(-2 * recall * recall / (both * both));
  shares[2 * blockIdx.x + 1] = static_cast<float>(-2 * precision * precision / (both * both) / total[kTarget]);
}

// From the gradient of the precision to that of the loss; through the sigmoid where there are logits.
__global__ void finish_gradient(float* grad, Group group, Skeleton target_skeleton, const float* probability,
                                Valid valid, bool logits) {
  const Span span = span_of();
  const float of_precision = group.shares[2 * span.volume], of_target = group.shares[2 * span.volume + 1];
  for (int64_t i = span.begin; i < valid.voxels; i += span.step) {
    const int64_t at = span.volume * valid.voxels + i;
    const float counted = valid.at(span.volume, i), p = probability[at];
    const float sum = of_precision * grad[at] + of_target * target_skeleton.at(at) * counted;
    grad[at] = logits ? sum * counted * (p * (1 - p)) : sum;
  }
}

class GroupRun {
 public:
  // `target_bits`: of the whole batch; null where the target is no mask.
  GroupRun(const ClDiceInput& input, Group group, const uint32_t* target_bits, int64_t first, Stream stream)
      : input_(input),
        group_(group),
        target_skeleton_{group.scratch},
        valid_{input.valid, first, input.channels, group.voxels},
        offset_(first * group.voxels),
        grid_(static_cast<unsigned>(group.parts), static_cast<unsigned>(group.volumes)),
        stream_(stream) {
    if (target_bits == nullptr) return;
    const MaskRows rows = mask_rows({group.volumes, input.batch.extent});
    target_skeleton_ = {nullptr, target_bits + first * rows.z * rows.y * rows.words, static_cast<unsigned>(rows.x),
                        static_cast<unsigned>(rows.words)};
  }

  void run(float* loss, float* grad) {
    if (input_.logits) {
      probabilities<<<grid_, kThreads, 0, stream_>>>(group_.probability, input_.values + offset_, valid_);
      check_launch("probabilities");
    }
    const float* probability = input_.logits ? group_.probability : input_.values + offset_;
    const float* target = input_.target + offset_;
    go_through_prediction(grad, probability, target);
    // Its maps are done with: the target's take their place.
    if (target_skeleton_.bits == nullptr) skeleton_forward(pass(target, nullptr), group_.scratch, nullptr);
    sum(target_skeleton_, probability, kTargetInPredicted);
    finish<<<static_cast<unsigned>(group_.volumes), 32 * kSums, 0, stream_>>>(
        loss, group_.shares, group_.sums, static_cast<int>(group_.parts), input_.smooth);
    check_launch("clDice");
    if (grad == nullptr) return;
    finish_gradient<<<grid_, kThreads, 0, stream_>>>(grad + offset_, group_, target_skeleton_, probability, valid_,
                                                     input_.logits);
    check_launch("gradient of clDice");
  }

 private:
  void go_through_prediction(float* grad, const float* probability, const float* target) {
    const SkeletonPass predicted = pass(probability, grad == nullptr ? nullptr : group_.middle);
    skeleton_forward(predicted, group_.scratch, grad == nullptr ? nullptr : group_.state);
    sum({group_.scratch}, target, kPredictedInTarget);
    if (grad == nullptr) return;
    finish_precision<<<static_cast<unsigned>(group_.volumes), 64, 0, stream_>>>(
        group_.factors, group_.sums, static_cast<int>(group_.parts), input_.smooth);
    check_launch("precision of clDice");
    const OuterGradient outer{target, group_.factors, input_.valid, valid_.first_volume, input_.channels};
    skeleton_backward(predicted, grad + offset_, group_.scratch, group_.state, outer);
  }
  SkeletonPass pass(const float* in, float* middle) const {
    return {in,     {group_.volumes, input_.batch.extent}, input_.options, {group_.eroded[0], group_.eroded[1]}, middle,
            stream_};
  }
  void sum(const Skeleton& skeleton, const float* other, int first_sum) {
    skeleton_sums<<<grid_, kThreads, 0, stream_>>>(group_.sums, skeleton, other, valid_, first_sum);
    check_launch("sums of a skeleton");
  }

  const ClDiceInput& input_;
  Group group_;
  Skeleton target_skeleton_;
  Valid valid_;
  int64_t offset_;
  dim3 grid_;
  Stream stream_;
};

}  // namespace

int64_t cldice_workspace(const VolumeBatch& batch) {
  return Group::floats(group_volumes(batch), batch.extent.voxels()) + 3 * mask_rows(batch).count();
}

void cldice_cuda(float* loss, float* grad, const ClDiceInput& input, float* workspace, Stream stream) {
  VOX_ASSERT(input.batch.extent.voxels() > 0);
  const int64_t step = group_volumes(input.batch);
  uint32_t* target_bits = nullptr;
  if (input.mask) {
    target_bits = reinterpret_cast<uint32_t*>(workspace + Group::floats(step, input.batch.extent.voxels()));
    mask_skeleton_cuda(target_bits, input.target, input.batch, input.options,
                       target_bits + mask_rows(input.batch).count(), stream);
  }
  for (int64_t first = 0; first < input.batch.volumes; first += step) {
    const int64_t volumes = std::min(step, input.batch.volumes - first);
    GroupRun(input, Group(workspace, volumes, input.batch.extent.voxels()), target_bits, first, stream)
        .run(loss + first, grad);
  }
}

}  // namespace vox
