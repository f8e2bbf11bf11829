// What happens to all parameters of a network at once on the GPU: few launches for any number of tensors, whose
// addresses travel in the arguments of the kernels, so that a captured graph needs nothing else. Sums have a fixed
// order.
#pragma once

#include <span>

#include "kernels/cuda.h"

namespace vox::cuda {

enum class OptimizerKind : uint8_t { kSgd, kAdam, kAdamW };

struct OptimizerTensor {
  float* weight = nullptr;
  const float* grad = nullptr;
  float* first = nullptr;  // momentum or mean; null where the momentum is 0
  float* second = nullptr;
  float* largest = nullptr;  // null: no amsgrad
  float* average = nullptr;  // null: none
  void* shadow = nullptr;    // null: none
  Scalar shadow_type = Scalar::kBFloat16;
  bool decays = true;
  int64_t count = 0;
};

struct OptimizerRule {
  OptimizerKind kind = OptimizerKind::kSgd;
  double beta1 = 0, beta2 = 0, epsilon = 0, momentum = 0, weight_decay = 0;
  double average_share = 0;                // average += share * (weight - average)
  double average_warm_up = 0;              // w: the share of good step t is at least w / (w + 1 + t)
  double clip_norm = 0, clip_epsilon = 0;  // clip_norm 0: none
  bool nesterov = false, keras_epsilon = false;
  bool dynamic_scale = false;  // the loss scale grows and shrinks by these
  double scale_growth = 1, scale_backoff = 1;
  int64_t scale_interval = 0;
};

struct OptimizerNumbers {  // on the device
  const float* lr = nullptr;
  float *loss_scale = nullptr, *found_inf = nullptr, *clip_factor = nullptr, *grad_norm = nullptr, *count = nullptr,
        *bad_steps = nullptr, *bad_in_a_row = nullptr;
  int32_t* growth_tracker = nullptr;
};

int64_t optimizer_workspace(std::span<const OptimizerTensor> tensors);  // bytes
// Unscale, norm, clip, update, average, shadows, loss scale; a gradient norm that is not finite changes no tensor.
void optimizer_step(std::span<const OptimizerTensor> tensors, const OptimizerRule& rule,
                    const OptimizerNumbers& numbers, void* workspace, Stream stream);

struct GradientMove {  // to = from, or to += from
  float* to = nullptr;
  const void* from = nullptr;
  Scalar type = Scalar::kBFloat16;  // of `from`
  bool add = false;
  int64_t count = 0;
};
void move_gradients(std::span<const GradientMove> moves, Stream stream);

struct SettledStatistic {  // master = value + step, or value = master where the step was bad
  float* value = nullptr;
  float* master = nullptr;
  float step = 0;
  int64_t count = 0;
};
void settle_statistics(std::span<const SettledStatistic> statistics, const float* bad, Stream stream);

}  // namespace vox::cuda
