#include "kernels/optimizer_cuda.h"

#include <vector>

#include "kernels/tensor_list.cuh"

namespace vox::cuda {
namespace {

// What the update needs to know of a step; made on the device from the gradient norm.
struct StepConstants {
  float grad_factor, lr;
  float shrink, decay;  // of tensors that decay: weight *= shrink (AdamW), grad += decay * weight (the others)
  float step_size, root_factor, average_share;
  int skip;
};

struct SquaredTensor {
  const float* values;
  int64_t count;
};

__device__ __forceinline__ double block_sum(double value) {
  __shared__ double warps[32];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  double sum = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) sum += warps[i];
  return sum;
}

__global__ void __launch_bounds__(kChunkThreads)
    squares_kernel(const __grid_constant__ TensorList<SquaredTensor> list, double* partials) {
  const Chunk chunk = chunk_of_block(list);
  const float* values = list.entries[chunk.tensor].values + chunk.begin;
  double sum = 0;
  constexpr int kLoads = kChunk / (kChunkThreads * kVector);
  if (chunk.count == kChunk && is_aligned(values)) {
    Pack<float, kVector> packs[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      packs[k] = load<kVector>(values + (k * kChunkThreads + static_cast<int>(threadIdx.x)) * kVector);
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum += static_cast<double>(packs[k].at[j]) * packs[k].at[j];
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < chunk.count; i += kChunkThreads)
      sum += static_cast<double>(values[i]) * values[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__device__ void update_scale(const OptimizerRule& rule, const OptimizerNumbers& numbers, bool bad) {
  if (bad) {
    *numbers.loss_scale *= static_cast<float>(rule.scale_backoff);
    *numbers.growth_tracker = 0;
  } else if (++*numbers.growth_tracker == rule.scale_interval) {
    const float grown = *numbers.loss_scale * static_cast<float>(rule.scale_growth);
    if (isfinite(grown)) *numbers.loss_scale = grown;
    *numbers.growth_tracker = 0;
  }
}

__device__ StepConstants constants_of(const OptimizerRule& rule, const OptimizerNumbers& numbers, double grad_factor) {
  const double lr = *numbers.lr, count = *numbers.count;
  StepConstants constants{};
  constants.grad_factor = static_cast<float>(grad_factor);
  constants.lr = *numbers.lr;
  const bool decoupled = rule.kind == OptimizerKind::kAdamW;
  constants.shrink = decoupled ? static_cast<float>(1 - lr * rule.weight_decay) : 1.0f;
  constants.decay = decoupled ? 0.0f : static_cast<float>(rule.weight_decay);
  const double warm_up = rule.average_warm_up / (rule.average_warm_up + 1 + count);
  constants.average_share = static_cast<float>(fmax(rule.average_share, warm_up));
  if (rule.kind == OptimizerKind::kSgd) return constants;
  const double correction1 = 1 - pow(rule.beta1, count), root2 = sqrt(1 - pow(rule.beta2, count));
  constants.step_size = static_cast<float>(rule.keras_epsilon ? lr * root2 / correction1 : lr / correction1);
  constants.root_factor = static_cast<float>(rule.keras_epsilon ? 1 : 1 / root2);
  return constants;
}

constexpr int kFinishThreads = 1024;

__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const double* partials, int64_t chunks, const __grid_constant__ OptimizerRule rule,
                  const __grid_constant__ OptimizerNumbers numbers, StepConstants* constants) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < chunks; i += kFinishThreads) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  const double unscale = 1.0 / *numbers.loss_scale, norm = sqrt(sum) * unscale;
  const bool bad = !isfinite(norm);
  double clip = 1;
  if (!bad && rule.clip_norm > 0) clip = fmin(1.0, rule.clip_norm / (norm + rule.clip_epsilon));
  *numbers.grad_norm = static_cast<float>(norm);
  *numbers.found_inf = bad ? 1.0f : 0.0f;
  *numbers.clip_factor = static_cast<float>(clip);
  *numbers.count += bad ? 0.0f : 1.0f;
  *numbers.bad_steps += bad ? 1.0f : 0.0f;
  *numbers.bad_in_a_row = bad ? *numbers.bad_in_a_row + 1 : 0.0f;
  *constants = constants_of(rule, numbers, unscale * clip);
  constants->skip = bad ? 1 : 0;
  if (rule.dynamic_scale) update_scale(rule, numbers, bad);
}

struct UpdateRule {  // of every step alike
  float beta1, beta2, epsilon, momentum;
  bool nesterov;
};

template <int kWidth>
__device__ __forceinline__ Pack<float, kWidth> adam(const OptimizerTensor& t, int64_t i, const StepConstants& c,
                                                    const UpdateRule& rule) {
  auto weight = load<kWidth>(t.weight + i), mean = load<kWidth>(t.first + i), square = load<kWidth>(t.second + i);
  const auto grad = load<kWidth>(t.grad + i);
  auto largest = t.largest ? load<kWidth>(t.largest + i) : Pack<float, kWidth>{};
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float w = weight.at[k] * c.shrink, g = grad.at[k] * c.grad_factor + c.decay * w;
    const float m = mean.at[k] + (1 - rule.beta1) * (g - mean.at[k]);
    const float v = rule.beta2 * square.at[k] + (1 - rule.beta2) * g * g;
    largest.at[k] = fmaxf(largest.at[k], v);
    mean.at[k] = m;
    square.at[k] = v;
    const float root = sqrtf(t.largest ? largest.at[k] : v);
    weight.at[k] = w - c.step_size * (m / (root * c.root_factor + rule.epsilon));
  }
  store(t.first + i, mean);
  store(t.second + i, square);
  if (t.largest) store(t.largest + i, largest);
  return weight;
}

template <int kWidth>
__device__ __forceinline__ Pack<float, kWidth> sgd(const OptimizerTensor& t, int64_t i, const StepConstants& c,
                                                   const UpdateRule& rule) {
  auto weight = load<kWidth>(t.weight + i), momentum = t.first ? load<kWidth>(t.first + i) : Pack<float, kWidth>{};
  const auto grad = load<kWidth>(t.grad + i);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float g = grad.at[k] * c.grad_factor + c.decay * weight.at[k];
    const float m = rule.momentum * momentum.at[k] + g;
    momentum.at[k] = m;
    const float direction = !t.first ? g : rule.nesterov ? g + rule.momentum * m : m;
    weight.at[k] -= c.lr * direction;
  }
  if (t.first) store(t.first + i, momentum);
  return weight;
}

template <bool kAdam>
__global__ void __launch_bounds__(kChunkThreads) update_kernel(const __grid_constant__ TensorList<OptimizerTensor> list,
                                                               const UpdateRule rule, const StepConstants* constants) {
  StepConstants c = *constants;
  if (c.skip) return;
  const Chunk chunk = chunk_of_block(list);
  const OptimizerTensor& t = list.entries[chunk.tensor];
  if (!t.decays) c.shrink = 1, c.decay = 0;
  const bool vectors = is_aligned(t.weight) && is_aligned(t.grad) && is_aligned(t.first) && is_aligned(t.second) &&
                       is_aligned(t.largest) && is_aligned(t.average) && is_aligned(t.shadow);
  for_each_element(chunk.count, vectors, [&](int place, auto width) {
    constexpr int kWidth = decltype(width)::value;
    const int64_t i = chunk.begin + place;
    auto average = t.average ? load<kWidth>(t.average + i) : Pack<float, kWidth>{};
    const auto weight = kAdam ? adam<kWidth>(t, i, c, rule) : sgd<kWidth>(t, i, c, rule);
    store(t.weight + i, weight);
    if (t.average) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) average.at[k] += c.average_share * (weight.at[k] - average.at[k]);
      store(t.average + i, average);
    }
    if (t.shadow == nullptr) return;
    if (t.shadow_type == Scalar::kBFloat16)
      store(static_cast<__nv_bfloat16*>(t.shadow) + i, weight);
    else
      store(static_cast<__half*>(t.shadow) + i, weight);
  });
}

template <class From>
__device__ __forceinline__ void move_chunk(const GradientMove& move, const Chunk& chunk) {
  float* to = move.to + chunk.begin;
  const From* from = static_cast<const From*>(move.from) + chunk.begin;
  for_each_element(chunk.count, is_aligned(to) && is_aligned(from), [&](int i, auto width) {
    constexpr int kWidth = decltype(width)::value;
    auto values = load<kWidth>(from + i);
    if (move.add) {
      const auto old = load<kWidth>(to + i);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values.at[k] += old.at[k];
    }
    store(to + i, values);
  });
}

__global__ void __launch_bounds__(kChunkThreads) move_kernel(const __grid_constant__ TensorList<GradientMove> list) {
  const Chunk chunk = chunk_of_block(list);
  const GradientMove& move = list.entries[chunk.tensor];
  if (move.type == Scalar::kFloat32)
    move_chunk<float>(move, chunk);
  else if (move.type == Scalar::kBFloat16)
    move_chunk<__nv_bfloat16>(move, chunk);
  else
    move_chunk<__half>(move, chunk);
}

__global__ void __launch_bounds__(kChunkThreads)
    settle_kernel(const __grid_constant__ TensorList<SettledStatistic> list, const float* bad) {
  const Chunk chunk = chunk_of_block(list);
  const SettledStatistic& one = list.entries[chunk.tensor];
  const bool back = *bad != 0;
  for (int i = static_cast<int>(threadIdx.x); i < chunk.count; i += kChunkThreads) {
    const int64_t place = chunk.begin + i;
    const float settled = back ? one.master[place] : one.value[place] + one.step;
    one.value[place] = one.master[place] = settled;
  }
}

int64_t all_chunks(std::span<const OptimizerTensor> tensors) {
  int64_t chunks = 0;
  for (const OptimizerTensor& tensor : tensors) chunks += chunks_of(tensor.count);
  return chunks;
}

}  // namespace

int64_t optimizer_workspace(std::span<const OptimizerTensor> tensors) {
  return static_cast<int64_t>(sizeof(StepConstants) + 16) + all_chunks(tensors) * static_cast<int64_t>(sizeof(double));
}

void optimizer_step(std::span<const OptimizerTensor> tensors, const OptimizerRule& rule,
                    const OptimizerNumbers& numbers, void* workspace, Stream stream) {
  auto* partials = static_cast<double*>(workspace);
  const int64_t chunks = all_chunks(tensors);
  auto* constants = reinterpret_cast<StepConstants*>(partials + chunks);
  std::vector<SquaredTensor> grads;
  for (const OptimizerTensor& tensor : tensors) grads.push_back({tensor.grad, tensor.count});
  for_each_list<SquaredTensor>(grads, [&](const auto& list, unsigned blocks, int64_t before) {
    squares_kernel<<<blocks, kChunkThreads, 0, stream>>>(list, partials + before);
    check_launch("squares of gradients");
  });
  finish_kernel<<<1, kFinishThreads, 0, stream>>>(partials, chunks, rule, numbers, constants);
  check_launch("gradient norm");
  const UpdateRule update{static_cast<float>(rule.beta1), static_cast<float>(rule.beta2),
                          static_cast<float>(rule.epsilon), static_cast<float>(rule.momentum), rule.nesterov};
  for_each_list<OptimizerTensor>(tensors, [&](const auto& list, unsigned blocks, int64_t) {
    if (rule.kind == OptimizerKind::kSgd)
      update_kernel<false><<<blocks, kChunkThreads, 0, stream>>>(list, update, constants);
    else
      update_kernel<true><<<blocks, kChunkThreads, 0, stream>>>(list, update, constants);
    check_launch("optimizer");
  });
}

void move_gradients(std::span<const GradientMove> moves, Stream stream) {
  for_each_list<GradientMove>(moves, [&](const auto& list, unsigned blocks, int64_t) {
    move_kernel<<<blocks, kChunkThreads, 0, stream>>>(list);
    check_launch("gradients to float32");
  });
}

void settle_statistics(std::span<const SettledStatistic> statistics, const float* bad, Stream stream) {
  for_each_list<SettledStatistic>(statistics, [&](const auto& list, unsigned blocks, int64_t) {
    settle_kernel<<<blocks, kChunkThreads, 0, stream>>>(list, bad);
    check_launch("running statistics");
  });
}

}  // namespace vox::cuda
