// Norm, residual and activation on the GPU: a = act(x * scale[n][c] + shift[n][c] + residual), forward and backward, on
// raw convolution outputs [n, z, y, x, c]. Sums are merged in a fixed order and never by atomics: two runs give the
// same bits.
#pragma once

#include "kernels/cuda.h"

namespace vox::cuda {

enum class ActKind : uint8_t { kNone, kLeakyRelu, kPrelu, kGelu, kElu, kSilu };  // ReLU is leaky with slope 0
struct Act {
  ActKind kind = ActKind::kNone;
  float slope = 0.01f;            // of the leaky ReLU
  const float* slopes = nullptr;  // of the PReLU, on the device: one, or one a channel
  bool slope_per_channel = false;
};

enum class NormOver : uint8_t { kInstance, kBatch, kGroup };
struct NormRule {
  NormOver over = NormOver::kInstance;
  int groups = 1;  // of a group norm
  float epsilon = 1e-5f;
  const float* gamma = nullptr;  // [c] each, or null
  const float* beta = nullptr;
  float* running_mean = nullptr;  // [c] each, or null: of a batch norm in training, moved towards the batch's
  float* running_variance = nullptr;
  float momentum = 0.1f;
};

// A pass leaves one row of partial sums for each of `rows` parts of a sample; what makes them may choose how many.
// Moments: (count, mean, M2) of each channel, [n][rows][3][c] float32; a part without values is three zeros.
int64_t moment_rows(const Shape5& shape);
void moments(const void* x, Scalar type, const Shape5& shape, float* partials, Stream stream);

struct NormState {  // float32 [n][c] each; batch and group norms repeat what samples and channels share
  float* mean = nullptr;
  float* rstd = nullptr;
  float* scale = nullptr;  // gamma * rstd
  float* shift = nullptr;  // beta - mean * scale
};
void finish_moments(const float* partials, int64_t rows, const Shape5& shape, const NormRule& rule,
                    const NormState& state, Stream stream);
// Sums [c] of each channel over all samples, from the same partials: what a bias gets as its gradient.
void sums_from_moments(const float* partials, int64_t rows, const Shape5& shape, float* sums, Stream stream);
// The same state from given statistics [c]: a batch norm outside training.
void state_from_running(const float* mean, const float* variance, const Shape5& shape, const NormRule& rule,
                        const NormState& state, Stream stream);

// y = act(x * scale + shift + residual); scale and shift null: 1 and 0; residual null: none. y may be x or residual.
void apply_norm(const void* x, const void* residual, void* y, Scalar type, const Shape5& shape, const float* scale,
                const float* shift, const Act& act, Stream stream);

// Backward. dz = dy * act'(z). First pass: partials [n][rows][terms][c] of sum(dz), sum(dz * xhat) and, for a PReLU,
// sum(dy * min(z, 0)); terms is 2 or 3. A data gradient may have left them on its way (kernels/hopper/conv3d.h).
struct NormGradInput {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* residual = nullptr;
  Scalar type = Scalar::kBFloat16;
  Shape5 shape;
  NormState state;  // scale and shift null where there is no norm
  Act act;
};
int64_t norm_grad_rows(const Shape5& shape);
void norm_grad_sums(const NormGradInput& input, float* partials, Stream stream);
// Second: dgamma, dbeta, dslope (null where not wanted; dslope as long as the slopes) and, per [n][c], the coefficients
// of dx = a * dz + b * x + c, as coefficients[3][n][c] (always written). `frozen`: the statistics did not depend on x
// (b = c = 0). The partials are used up: they may be overwritten.
struct NormGradResult {
  float* dgamma = nullptr;
  float* dbeta = nullptr;
  float* dslope = nullptr;
  float* coefficients = nullptr;
};
void finish_norm_grad(float* partials, int64_t rows, const NormGradInput& input, const NormRule& rule, bool frozen,
                      const NormGradResult& result, Stream stream);
// Third: dx, and dresidual = dz where wanted (null: not). Either may be the memory of dy. dx null: only dresidual.
// coefficients null: dx = dz, as where there is no norm.
void norm_grad_apply(const NormGradInput& input, const float* coefficients, void* dx, void* dresidual, Stream stream);

}  // namespace vox::cuda
