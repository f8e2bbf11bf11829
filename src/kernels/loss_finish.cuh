// From the partial sums of the losses to their values and to what the backward pass multiplies with.
#pragma once

#include "kernels/cuda_device.cuh"
#include "kernels/loss_cuda.h"

namespace vox::cuda {

// Where everything lies. A unit is a sample of a softmax, else one channel of a sample.
struct LossPlan {
  int rounds = 1;                            // of a block over its voxels
  int units = 1, channels = 1, sums = 1;     // channels and sums of a unit, as the kernel counts them
  int first_block[kMaxLossScales + 1] = {};  // of each scale
  int chunks[kMaxLossScales] = {};           // of a unit
  int64_t first_partial[kMaxLossScales] = {};
  bool vectors[kMaxLossScales] = {};  // whether four voxels are read at once
  double* total = nullptr;            // [scale][unit][sum]
  float* coefficients = nullptr;      // [scale][unit][a, b][channel]
  float* factors = nullptr;           // [scale][term]
  float* partials = nullptr;          // of each scale [unit][sum][chunk]
};

struct ScaleSums {  // of one scale
  const double* total;
  int units, sums;
  __device__ double over_units(int which) const {
    double sum = 0;
    for (int u = 0; u < units; ++u) sum += total[u * sums + which];
    return sum;
  }
};

struct Region {  // sums over one region: value and coefficients of d(value)/dp = a t + b
  double value, a, b;
};
__device__ inline Region region_of(const LossProblem& problem, double both, double p, double t) {
  const double alpha = problem.alpha, beta = problem.beta, above = both + problem.smooth;
  const double below = both + alpha * (p - both) + beta * (t - both) + problem.smooth;
  return {1 - above / below, -(below - above * (1 - alpha - beta)) / (below * below), alpha * above / (below * below)};
}

// Mean over classes and samples, or over classes with the samples summed up. Leaves the coefficients, times `weight`.
__device__ inline double region_term(const LossProblem& problem, const LossPlan& plan, const ScaleSums& scale,
                                     double weight, float* coefficients) {
  const int first = problem.channels > 1 && !problem.background ? 1 : 0, classes = problem.channels - first;
  const int groups = problem.batch ? 1 : scale.units, members = problem.batch ? scale.units : 1;
  double sum = 0;
  for (int c = first; c < problem.channels; ++c) {
    for (int g = 0; g < groups; ++g) {
      double parts[3] = {};
      for (int u = g * members; u < (g + 1) * members; ++u)
        for (int i = 0; i < 3; ++i) parts[i] += scale.total[u * scale.sums + 3 * c + i];
      const Region region = region_of(problem, parts[0], parts[1], parts[2]);
      sum += region.value;
      for (int u = g * members; u < (g + 1) * members; ++u) {
        coefficients[(2 * u) * plan.channels + c] = static_cast<float>(weight * region.a / (groups * classes));
        coefficients[(2 * u + 1) * plan.channels + c] = static_cast<float>(weight * region.b / (groups * classes));
      }
    }
  }
  return sum / (groups * classes);
}

// The values of the terms at one scale, and what the backward pass multiplies with.
__device__ inline void finish_scale(const LossProblem& problem, const LossPlan& plan, int s,
                                    double (&values)[kLossTerms]) {
  const LossScale& scale = problem.scale[s];
  const ScaleSums sums{plan.total + int64_t{s} * plan.units * plan.sums, plan.units, plan.sums};
  float *factors = plan.factors + s * kLossTerms,
        *coefficients = plan.coefficients + 2 * s * plan.units * plan.channels;
  const auto mean = [&](int term, double above, double below) {
    const double counted = below > 0 ? below : 1;
    factors[term] = static_cast<float>(scale.total_weight[term] / counted);
    values[term] = above / counted;
  };
  for (int i = 0; i < 2 * plan.units * plan.channels; ++i) coefficients[i] = 0;
  if (problem.group == LossGroup::kValues) {
    mean(0, sums.over_units(0), static_cast<double>(plan.units) * scale.z * scale.y * scale.x);
    mean(1, sums.over_units(1), sums.over_units(2));
    mean(2, sums.over_units(3), sums.over_units(4));
    return;
  }
  values[0] = values[2] = 0;
  factors[0] = factors[2] = 0;
  if (scale.value_weight[0] != 0) values[0] = region_term(problem, plan, sums, scale.total_weight[0], coefficients);
  mean(1, sums.over_units(3 * plan.channels), sums.over_units(3 * plan.channels + 1));
}

constexpr int kLossFinishThreads = 1024;

static __global__ void __launch_bounds__(kLossFinishThreads)
    finish_losses(const __grid_constant__ LossProblem problem, const __grid_constant__ LossPlan plan,
                  LossResult result) {
  const int lane = static_cast<int>(threadIdx.x) % 32, rows = plan.units * plan.sums;
  for (int row = static_cast<int>(threadIdx.x) / 32; row < problem.scales * rows; row += kLossFinishThreads / 32) {
    const int s = row / rows, chunks = plan.chunks[s];
    const float* partials = plan.partials + plan.first_partial[s] + int64_t{row - s * rows} * chunks;
    double sum = 0;
    for (int i = lane; i < chunks; i += 32) sum += partials[i];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane == 0) plan.total[row] = sum;
  }
  __syncthreads();
  __shared__ double values[kMaxLossScales][kLossTerms];
  const int s = static_cast<int>(threadIdx.x) / 32;  // a warp each: they do not wait for one another
  if (lane == 0 && s < problem.scales) finish_scale(problem, plan, s, values[s]);
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
  for (int term = 0; term < kLossTerms; ++term) {
    double value = 0;
    for (int i = 0; i < problem.scales; ++i) {
      const LossScale& scale = problem.scale[i];
      if (scale.value_weight[term] != 0) value += scale.value_weight[term] * values[i][term];
      if (scale.total_weight[term] != 0) total += scale.total_weight[term] * values[i][term];
    }
    result.terms[term] = static_cast<float>(value);
  }
  *result.total = static_cast<float>(total);
}

}  // namespace vox::cuda
