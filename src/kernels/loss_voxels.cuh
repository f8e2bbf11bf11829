// What the losses do with one voxel: its sums, and its gradient from the coefficients that the sums gave.
#pragma once

#include "kernels/cuda_device.cuh"
#include "kernels/loss_cuda.h"

namespace vox::cuda {

// Coefficients of a unit (a sample of a softmax, else one channel of a sample) at one scale: a and b of
// d(total)/dp = a t + b for each channel. Then those of a scale: one factor a term.
template <int kChannels>
struct Coefficients {
  float a[kChannels], b[kChannels], term[kLossTerms];
};

// log(1 + r) for r >= 0 to 2e-7 of itself. Up to 1 a polynomial of degree 9 times r (Chebyshev fit): the exact function
// of the library takes as long as all the rest of a voxel.
__device__ __forceinline__ float log_one_plus(float r) {
  constexpr float kFit[] = {1.0f,          -0.499999046f, 0.333300054f,   -0.249545589f, 0.196781173f,
                            -0.153118625f, 0.106142648f,  -0.0570642017f, 0.0199071616f, -0.00325637846f};
  float sum = kFit[9];
#pragma unroll
  for (int k = 8; k >= 0; --k) sum = fmaf(sum, r, kFit[k]);
  return r > 1 ? __logf(1 + r) : sum * r;
}

struct Logistic {  // p of x, 1 - p as exact as p itself, exp(-|x|)
  float p, q, e;
};
__device__ __forceinline__ float reciprocal(float v) {
  return __fdividef(1.0f, v);
}
__device__ __forceinline__ Logistic logistic(float x) {
  const float e = __expf(-fabsf(x)), inverse = reciprocal(1 + e);
  return x >= 0 ? Logistic{inverse, e * inverse, e} : Logistic{e * inverse, inverse, e};
}

// Sums: p t, p, t, cross entropy, count.
struct SigmoidVoxel {
  static constexpr int kChannels = 1, kSums = 5;
  float pos_weight, class_weight;
  __device__ SigmoidVoxel(const LossProblem& problem, int channel)
      : pos_weight(problem.pos_weight), class_weight(problem.class_weight[channel]) {}

  __device__ void add(const float (&x)[1], float t, bool counts, float (&sums)[kSums]) const {
    if (!counts) return;
    const auto [p, q, e] = logistic(x[0]);
    const float softplus = fmaxf(-x[0], 0.0f) + log_one_plus(e);  // log(1 + exp(-x))
    sums[0] += p * t;
    sums[1] += p;
    sums[2] += t;
    sums[3] += class_weight * ((1 - t) * x[0] + (1 + (pos_weight - 1) * t) * softplus);
    sums[4] += 1;
  }
  __device__ void differentiate(const float (&x)[1], float t, bool counts, const Coefficients<1>& c,
                                float (&dx)[1]) const {
    const auto [p, q, e] = logistic(x[0]);
    const float entropy = class_weight * ((1 - t) - (1 + (pos_weight - 1) * t) * q);
    dx[0] = counts ? (c.a[0] * t + c.b[0]) * p * q + c.term[1] * entropy : 0.0f;
  }
};

// Sums: absolute error of every voxel; weighted absolute error, its weights, squared error, count of those that count.
struct ValueVoxel {
  static constexpr int kChannels = 1, kSums = 5;
  float target_weight;
  __device__ ValueVoxel(const LossProblem& problem, int) : target_weight(problem.target_weight) {}

  __device__ void add(const float (&x)[1], float t, bool counts, float (&sums)[kSums]) const {
    const float d = x[0] - t, weight = 1 + target_weight * fabsf(t);
    sums[0] += fabsf(d);
    if (!counts) return;
    sums[1] += weight * fabsf(d);
    sums[2] += weight;
    sums[3] += d * d;
    sums[4] += 1;
  }
  __device__ void differentiate(const float (&x)[1], float t, bool counts, const Coefficients<1>& c,
                                float (&dx)[1]) const {
    const float d = x[0] - t, weight = 1 + target_weight * fabsf(t);
    const float sign = d > 0 ? 1.0f : d < 0 ? -1.0f : d;  // d: 0, or what is no number
    dx[0] = c.term[0] * sign;
    if (counts) dx[0] += c.term[1] * weight * sign + c.term[2] * 2 * d;
  }
};

// Sums: p t, p, t of each class, weighted cross entropy, its weights. kMax channels or fewer: `channels` of them.
template <int kMax, bool kAll>
struct SoftmaxVoxel {
  static constexpr int kChannels = kMax, kSums = 3 * kMax + 2;
  const LossProblem& problem;
  __device__ SoftmaxVoxel(const LossProblem& given, int) : problem(given) {}
  __device__ bool has(int c) const { return kAll || c < problem.channels; }

  struct Probabilities {
    float p[kMax], rest, top;  // sum of exp(x - top) but for the largest itself
  };
  __device__ Probabilities softmax(const float (&x)[kMax]) const {
    Probabilities result;
    int largest = 0;
    result.top = x[0];
#pragma unroll
    for (int c = 1; c < kMax; ++c)
      if (has(c) && x[c] > result.top) result.top = x[c], largest = c;
    result.rest = 0;
#pragma unroll
    for (int c = 0; c < kMax; ++c) {
      result.p[c] = has(c) ? __expf(x[c] - result.top) : 0.0f;
      if (c != largest) result.rest += result.p[c];
    }
    const float inverse = reciprocal(1 + result.rest);
#pragma unroll
    for (int c = 0; c < kMax; ++c) result.p[c] *= inverse;
    return result;
  }

  __device__ void add(const float (&x)[kMax], float t, bool counts, float (&sums)[kSums]) const {
    if (!counts) return;
    const Probabilities all = softmax(x);
    const int truth = static_cast<int>(t);
    float own = 0, weight = 0;
#pragma unroll
    for (int c = 0; c < kMax; ++c) {
      const bool is = c == truth;
      if (is) own = x[c], weight = problem.class_weight[c];
      sums[3 * c] += is ? all.p[c] : 0.0f;
      sums[3 * c + 1] += all.p[c];
      sums[3 * c + 2] += is ? 1.0f : 0.0f;
    }
    sums[3 * kMax] += weight * ((all.top - own) + log_one_plus(all.rest));
    sums[3 * kMax + 1] += weight;
  }
  __device__ void differentiate(const float (&x)[kMax], float t, bool counts, const Coefficients<kMax>& c,
                                float (&dx)[kMax]) const {
    const Probabilities all = softmax(x);
    const int truth = static_cast<int>(t);
    float mean = 0, entropy = 0, others = 0;  // 1 - p of the truth without cancellation
#pragma unroll
    for (int k = 0; k < kMax; ++k) {
      if (k == truth) entropy = c.term[1] * problem.class_weight[k];
      if (k != truth) others += all.p[k];
      mean += all.p[k] * ((k == truth ? c.a[k] : 0.0f) + c.b[k]);
    }
#pragma unroll
    for (int k = 0; k < kMax; ++k) {
      const float slope = (k == truth ? c.a[k] : 0.0f) + c.b[k] - mean;
      const float whole = all.p[k] * slope + entropy * (k == truth ? -others : all.p[k]);
      dx[k] = counts ? whole : 0.0f;
    }
  }
};

}  // namespace vox::cuda
