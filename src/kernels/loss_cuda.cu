#include "kernels/loss_cuda.h"

#include "base/error.h"
#include "kernels/loss_finish.cuh"
#include "kernels/loss_voxels.cuh"
#include "kernels/tensor_list.cuh"

namespace vox::cuda {
namespace {

// A thread goes through its voxels one after another, each a wait for memory: a block has few of them, and fewer where
// there would not be blocks for all places on the GPU.
constexpr int kLossThreads = 256, kLossRounds = 8, kLossBlocks = 8;  // these blocks fit on a multiprocessor

template <int kCount, class T>
__device__ __forceinline__ void read_as(const void* data, int64_t at, float (&values)[kCount]) {
  const auto pack = *reinterpret_cast<const Pack<T, kCount>*>(static_cast<const T*>(data) + at);
#pragma unroll
  for (int k = 0; k < kCount; ++k) values[k] = static_cast<float>(pack.at[k]);
}

template <int kCount>
__device__ __forceinline__ void read(const LossVolume& volume, int64_t at, float (&values)[kCount]) {
  switch (volume.type) {
    case Element::kUInt8:
      return read_as<kCount, uint8_t>(volume.data, at, values);
    case Element::kInt8:
      return read_as<kCount, int8_t>(volume.data, at, values);
    case Element::kInt16:
      return read_as<kCount, int16_t>(volume.data, at, values);
    case Element::kInt32:
      return read_as<kCount, int32_t>(volume.data, at, values);
    case Element::kInt64:
#pragma unroll
      for (int k = 0; k < kCount; ++k) values[k] = static_cast<float>(static_cast<const int64_t*>(volume.data)[at + k]);
      return;
    case Element::kFloat32:
      return read_as<kCount, float>(volume.data, at, values);
  }
}

struct Unit {
  int scale, index, chunk;
  int sample, channel;
};

__device__ __forceinline__ Unit unit_of_block(const LossProblem& problem, const LossPlan& plan) {
  Unit unit;
  unit.scale = 0;
  while (static_cast<int>(blockIdx.x) >= plan.first_block[unit.scale + 1]) ++unit.scale;
  const int place = static_cast<int>(blockIdx.x) - plan.first_block[unit.scale];
  unit.index = place / plan.chunks[unit.scale];
  unit.chunk = place % plan.chunks[unit.scale];
  const bool softmax = problem.group == LossGroup::kSoftmax;
  unit.sample = softmax ? unit.index : unit.index / problem.channels;
  unit.channel = softmax ? 0 : unit.index % problem.channels;
  return unit;
}

// The voxel of the full volumes that a voxel of the scale takes its target from: floor(i * size / own size).
__device__ __forceinline__ int64_t full_place(const LossProblem& problem, const LossScale& scale, int64_t voxel) {
  const auto place = static_cast<unsigned>(voxel), row = place / scale.x;  // 32 bits: division is what takes time here
  const unsigned x = place - row * scale.x, z = row / scale.y, y = row - z * scale.y;
  const auto nearest = [](unsigned i, int size, int own) { return i * size / own; };
  return (int64_t{nearest(z, problem.z, scale.z)} * problem.y + nearest(y, problem.y, scale.y)) * problem.x +
         nearest(x, problem.x, scale.x);
}

// Target and whether the voxel counts, of kCount voxels from `place` of the full volumes on. A softmax gets the class.
template <int kCount>
__device__ __forceinline__ void read_target(const LossProblem& problem, const Unit& unit, int64_t place,
                                            float (&target)[kCount], bool (&counts)[kCount]) {
  const int64_t voxels = int64_t{problem.z} * problem.y * problem.x, at = unit.sample * voxels + place;
  const bool by_channel = problem.form == TargetForm::kValue;
  read(problem.target, by_channel ? (int64_t{unit.sample} * problem.channels + unit.channel) * voxels + place : at,
       target);
#pragma unroll
  for (int k = 0; k < kCount; ++k) counts[k] = true;
  float other[kCount];
  if (problem.label.data) {
    const bool same = problem.label.data == problem.target.data && !by_channel;
    if (!same) read(problem.label, at, other);
#pragma unroll
    for (int k = 0; k < kCount; ++k) counts[k] = (same ? target[k] : other[k]) != problem.ignored;
  }
  if (problem.mask.data) {
    read(problem.mask, at, other);
#pragma unroll
    for (int k = 0; k < kCount; ++k) counts[k] = counts[k] && other[k] != 0;
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    if (problem.form == TargetForm::kAboveZero) target[k] = target[k] > 0 ? 1.0f : 0.0f;
    if (problem.form != TargetForm::kClass) continue;
    float place_of_value = target[k];
    if (problem.values > 0) {
      place_of_value = 0;
      for (int i = 0; i < problem.values; ++i) place_of_value += problem.value[i] < target[k] ? 1.0f : 0.0f;
    }
    const float named = fminf(fmaxf(place_of_value, 0.0f), static_cast<float>(problem.channels - 1));
    target[k] = problem.group == LossGroup::kSoftmax ? named : named == static_cast<float>(unit.channel) ? 1.0f : 0.0f;
  }
}

// Calls work(voxel, logits, target, counts) with kCount voxels at a time.
template <class Voxel, int kCount, class Work>
__device__ __forceinline__ void walk(const LossProblem& problem, const Unit& unit, int rounds, const Work& work) {
  constexpr int kChannels = Voxel::kChannels;
  const LossScale& scale = problem.scale[unit.scale];
  const int64_t voxels = int64_t{scale.z} * scale.y * scale.x, most = int64_t{kLossThreads} * rounds * kCount;
  const int64_t begin = unit.chunk * most, left = voxels - begin;
  const int count = static_cast<int>(left < most ? left : most);
  const int channels = kChannels == 1 ? 1 : problem.channels;
  const float* logits = scale.logits + int64_t{unit.index} * channels * voxels;
  for (int i = static_cast<int>(threadIdx.x) * kCount; i < count; i += kLossThreads * kCount) {
    const int64_t voxel = begin + i;
    Pack<float, kCount> x[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      if (c < channels) x[c] = load<kCount>(logits + c * voxels + voxel);
    float target[kCount];
    bool counts[kCount];
    read_target(problem, unit, kCount == 1 ? full_place(problem, scale, voxel) : voxel, target, counts);
    work(voxel, x, target, counts);
  }
}

template <class Voxel, int kCount>
__device__ __forceinline__ void add_chunk(const LossProblem& problem, const Unit& unit, int rounds,
                                          float (&sums)[Voxel::kSums]) {
  const Voxel rule(problem, unit.channel);
  walk<Voxel, kCount>(problem, unit, rounds, [&](int64_t, const auto& x, const auto& target, const auto& counts) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      float own[Voxel::kChannels];
#pragma unroll
      for (int c = 0; c < Voxel::kChannels; ++c) own[c] = x[c].at[k];
      rule.add(own, target[k], counts[k], sums);
    }
  });
}

template <class Voxel>
__global__ void __launch_bounds__(kLossThreads)
    forward_kernel(const __grid_constant__ LossProblem problem, const __grid_constant__ LossPlan plan) {
  const Unit unit = unit_of_block(problem, plan);
  float sums[Voxel::kSums] = {};
  if (plan.vectors[unit.scale])
    add_chunk<Voxel, kVector>(problem, unit, plan.rounds, sums);
  else
    add_chunk<Voxel, 1>(problem, unit, plan.rounds, sums);
  __shared__ float warps[kLossThreads / 32][Voxel::kSums];
#pragma unroll
  for (int q = 0; q < Voxel::kSums; ++q) {
    for (int offset = 16; offset > 0; offset /= 2) sums[q] += __shfl_xor_sync(0xffffffffu, sums[q], offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32][q] = sums[q];
  }
  __syncthreads();
  if (threadIdx.x >= Voxel::kSums) return;
  float sum = 0;
  for (int warp = 0; warp < kLossThreads / 32; ++warp) sum += warps[warp][threadIdx.x];
  const int64_t row = int64_t{unit.index} * Voxel::kSums + threadIdx.x;
  plan.partials[plan.first_partial[unit.scale] + row * plan.chunks[unit.scale] + unit.chunk] = sum;
}

template <class Voxel, int kCount>
__device__ __forceinline__ void differentiate_chunk(const LossProblem& problem, const Unit& unit, int rounds,
                                                    const Coefficients<Voxel::kChannels>& coefficients) {
  constexpr int kChannels = Voxel::kChannels;
  const Voxel rule(problem, unit.channel);
  const LossScale& scale = problem.scale[unit.scale];
  const int64_t voxels = int64_t{scale.z} * scale.y * scale.x;
  const int channels = kChannels == 1 ? 1 : problem.channels;
  float* dlogits = scale.dlogits + int64_t{unit.index} * channels * voxels;
  walk<Voxel, kCount>(problem, unit, rounds, [&](int64_t voxel, const auto& x, const auto& target, const auto& counts) {
    Pack<float, kCount> dx[kChannels];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      float own[kChannels], slope[kChannels];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) own[c] = x[c].at[k];
      rule.differentiate(own, target[k], counts[k], coefficients, slope);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) dx[c].at[k] = slope[c];
    }
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      if (c < channels) store(dlogits + c * voxels + voxel, dx[c]);
  });
}

template <class Voxel>
__global__ void __launch_bounds__(kLossThreads)
    backward_kernel(const __grid_constant__ LossProblem problem, const __grid_constant__ LossPlan plan,
                    const float* upstream) {
  constexpr int kChannels = Voxel::kChannels;
  const Unit unit = unit_of_block(problem, plan);
  const float outer = *upstream;
  Coefficients<kChannels> own;
  const float* given = plan.coefficients + (int64_t{unit.scale} * plan.units + unit.index) * 2 * kChannels;
#pragma unroll
  for (int c = 0; c < kChannels; ++c) own.a[c] = outer * given[c], own.b[c] = outer * given[kChannels + c];
#pragma unroll
  for (int t = 0; t < kLossTerms; ++t) own.term[t] = outer * plan.factors[unit.scale * kLossTerms + t];
  if (plan.vectors[unit.scale])
    differentiate_chunk<Voxel, kVector>(problem, unit, plan.rounds, own);
  else
    differentiate_chunk<Voxel, 1>(problem, unit, plan.rounds, own);
}

// Calls work with the type that handles the voxels of the group.
template <class Work>
void with_voxel(const LossProblem& problem, const Work& work) {
  if (problem.group == LossGroup::kSigmoid) return work.template operator()<SigmoidVoxel>();
  if (problem.group == LossGroup::kValues) return work.template operator()<ValueVoxel>();
  VOX_ASSERT(problem.channels >= 2 && problem.channels <= kMaxLossClasses);
  if (problem.channels == 2) return work.template operator()<SoftmaxVoxel<2, true>>();
  if (problem.channels == 3) return work.template operator()<SoftmaxVoxel<3, true>>();
  if (problem.channels == 4) return work.template operator()<SoftmaxVoxel<4, true>>();
  if (problem.channels <= 8) return work.template operator()<SoftmaxVoxel<8, false>>();
  work.template operator()<SoftmaxVoxel<16, false>>();
}

bool four_at_once(const LossProblem& problem, const LossScale& scale) {
  const auto aligned = [](const LossVolume& volume) {
    constexpr int64_t kSizes[] = {1, 1, 2, 4, 8, 4};
    return reinterpret_cast<uintptr_t>(volume.data) %
               static_cast<uintptr_t>(4 * kSizes[static_cast<int>(volume.type)]) ==
           0;
  };
  const auto whole = [](const float* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; };
  return scale.z == problem.z && scale.y == problem.y && scale.x == problem.x &&
         int64_t{scale.z} * scale.y * scale.x % kVector == 0 && whole(scale.logits) && whole(scale.dlogits) &&
         aligned(problem.target) && aligned(problem.label) && aligned(problem.mask);
}

// The same for both passes, whatever memory they are given; returns the bytes too.
int64_t plan_loss(const LossProblem& problem, void* workspace, LossPlan& plan) {
  with_voxel(problem, [&]<class Voxel> {
    plan.channels = Voxel::kChannels;
    plan.sums = Voxel::kSums;
  });
  const bool softmax = problem.group == LossGroup::kSoftmax;
  plan.units = static_cast<int>(softmax ? problem.samples : problem.samples * problem.channels);
  VOX_ASSERT(problem.scales >= 1 && problem.scales <= kMaxLossScales);
  int64_t partials = 0, groups = 0;  // of four voxels, or of one
  for (int s = 0; s < problem.scales; ++s) {
    const LossScale& scale = problem.scale[s];
    const int64_t at_once = kLossThreads * (four_at_once(problem, scale) ? kVector : 1);
    groups += plan.units * ((int64_t{scale.z} * scale.y * scale.x + at_once - 1) / at_once);
  }
  plan.rounds = kLossRounds;
  while (plan.rounds > 1 && groups / plan.rounds < int64_t{kLossBlocks} * multiprocessors()) plan.rounds /= 2;
  for (int s = 0; s < problem.scales; ++s) {
    const LossScale& scale = problem.scale[s];
    VOX_ASSERT(int64_t{scale.z} * scale.y * scale.x < int64_t{1} << 31 &&
               std::max({problem.z, problem.y, problem.x}) < 1 << 15);
    plan.vectors[s] = four_at_once(problem, scale);
    const int64_t chunk = int64_t{kLossThreads} * plan.rounds * (plan.vectors[s] ? kVector : 1);
    plan.chunks[s] = static_cast<int>((int64_t{scale.z} * scale.y * scale.x + chunk - 1) / chunk);
    plan.first_block[s + 1] = plan.first_block[s] + plan.chunks[s] * plan.units;
    plan.first_partial[s] = partials;
    partials += int64_t{plan.units} * plan.sums * plan.chunks[s];
  }
  const int64_t rows = int64_t{problem.scales} * plan.units;
  plan.total = static_cast<double*>(workspace);
  plan.coefficients = reinterpret_cast<float*>(plan.total + rows * plan.sums);
  plan.factors = plan.coefficients + rows * 2 * plan.channels;
  plan.partials = plan.factors + problem.scales * kLossTerms;
  return 8 * rows * plan.sums + 4 * (rows * 2 * plan.channels + problem.scales * kLossTerms + partials);
}

}  // namespace

int64_t loss_workspace(const LossProblem& problem) {
  LossPlan plan;
  return plan_loss(problem, nullptr, plan);
}

void loss_forward(const LossProblem& problem, const LossResult& result, void* workspace, Stream stream) {
  LossPlan plan;
  plan_loss(problem, workspace, plan);
  with_voxel(problem, [&]<class Voxel> {
    forward_kernel<Voxel>
        <<<static_cast<unsigned>(plan.first_block[problem.scales]), kLossThreads, 0, stream>>>(problem, plan);
  });
  check_launch("sums of losses");
  finish_losses<<<1, kLossFinishThreads, 0, stream>>>(problem, plan, result);
  check_launch("values of losses");
}

void loss_backward(const LossProblem& problem, const float* upstream, const void* workspace, Stream stream) {
  LossPlan plan;
  plan_loss(problem, const_cast<void*>(workspace), plan);
  with_voxel(problem, [&]<class Voxel> {
    backward_kernel<Voxel>
        <<<static_cast<unsigned>(plan.first_block[problem.scales]), kLossThreads, 0, stream>>>(problem, plan, upstream);
  });
  check_launch("gradient of losses");
}

}  // namespace vox::cuda
