#include "kernels/dice_bce_cuda.h"

#include <algorithm>

#include "kernels/cuda_device.cuh"

namespace vox {

using namespace cuda;

namespace {

constexpr int kThreads = 256;
constexpr int64_t kPartVoxels = 16 * kThreads;  // at least, summed by a block
enum Sum { kOverlap, kPredicted, kTarget, kEntropy, kVoxels };

int64_t parts_of(const DiceBceInput& input) {
  return std::clamp<int64_t>(input.voxels / kPartVoxels, 1, 1024);
}

struct Probability {
  float p, softplus;  // of the logit's absolute value, negated
};
__device__ __forceinline__ Probability probability_of(float logit) {
  const float e = expf(-fabsf(logit)), share = 1 / (1 + e);
  return {logit >= 0 ? share : e * share, log1pf(e)};
}

__device__ __forceinline__ void add_voxel(float (&sums)[kDiceBceSums], float logit, float target) {
  if (target < 0) return;
  const Probability found = probability_of(logit);
  sums[kOverlap] += found.p * target;
  sums[kPredicted] += found.p;
  sums[kTarget] += target;
  sums[kEntropy] += fmaxf(logit, 0) - logit * target + found.softplus;
  sums[kVoxels] += 1;
}

// grid: parts, samples. A part has a stretch of voxels, so that a float never holds many of them.
__global__ void __launch_bounds__(kThreads) sum_parts(double* partials, DiceBceInput input, int64_t part_voxels) {
  const int64_t begin = blockIdx.x * part_voxels, end = ::min(begin + part_voxels, input.voxels);
  const float *logits = input.logits + blockIdx.y * input.voxels, *target = input.target + blockIdx.y * input.voxels;
  float sums[kDiceBceSums] = {};
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) add_voxel(sums, logits[i], target[i]);
  __shared__ double warps[kThreads / 32][kDiceBceSums];
#pragma unroll
  for (int q = 0; q < kDiceBceSums; ++q) {
    double sum = sums[q];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32][q] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= kDiceBceSums) return;
  double sum = 0;
  for (const auto& warp : warps) sum += warp[threadIdx.x];
  partials[(int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * kDiceBceSums + threadIdx.x] = sum;
}

// A block a sample, a warp a sum.
__global__ void add_parts(double* sums, const double* partials, int parts) {
  const int q = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  double sum = 0;
  for (int part = lane; part < parts; part += 32)
    sum += partials[(int64_t{blockIdx.x} * parts + part) * kDiceBceSums + q];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (lane == 0) sums[int64_t{blockIdx.x} * kDiceBceSums + q] = sum;
}

__global__ void __launch_bounds__(kThreads) differentiate(float* grad, const double* grads, DiceBceInput input) {
  const double* by = grads + int64_t{blockIdx.y} * kDiceBceSums;
  const auto of_overlap = static_cast<float>(by[kOverlap]), of_predicted = static_cast<float>(by[kPredicted]),
             of_entropy = static_cast<float>(by[kEntropy]);
  const int64_t first = blockIdx.y * input.voxels, step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < input.voxels; i += step) {
    const float target = input.target[first + i], p = probability_of(input.logits[first + i]).p;
    const float by_probability = of_overlap * target + of_predicted;
    grad[first + i] = target < 0 ? 0 : by_probability * (p * (1 - p)) + of_entropy * (p - target);
  }
}

dim3 grid_of(const DiceBceInput& input, int64_t parts) {
  VOX_CHECK(input.samples < 65536, input.samples, " samples at once are too many for the GPU; at most 65535");
  return {static_cast<unsigned>(parts), static_cast<unsigned>(input.samples)};
}

}  // namespace

int64_t dice_bce_workspace(const DiceBceInput& input) {
  return input.samples * parts_of(input) * kDiceBceSums;
}

void dice_bce_sums_cuda(double* sums, const DiceBceInput& input, double* workspace, Stream stream) {
  if (input.samples == 0) return;
  const int64_t parts = parts_of(input);
  sum_parts<<<grid_of(input, parts), kThreads, 0, stream>>>(workspace, input, (input.voxels + parts - 1) / parts);
  check_launch("sums of Dice");
  add_parts<<<static_cast<unsigned>(input.samples), 32 * kDiceBceSums, 0, stream>>>(sums, workspace,
                                                                                    static_cast<int>(parts));
  check_launch("sums of Dice");
}

void dice_bce_backward_cuda(float* grad, const double* grads, const DiceBceInput& input, Stream stream) {
  if (input.samples == 0 || input.voxels == 0) return;
  const int64_t blocks = std::clamp<int64_t>(input.voxels / (4 * kThreads), 1, 4096);
  differentiate<<<grid_of(input, blocks), kThreads, 0, stream>>>(grad, grads, input);
  check_launch("gradient of Dice");
}

}  // namespace vox
