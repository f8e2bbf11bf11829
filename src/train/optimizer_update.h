// The arithmetic of one optimizer step, twice: plain loops over float32 arrays on the CPU, multi-tensor kernels on a
// GPU. Both leave the same state.
#pragma once

#include <cstdint>
#include <vector>

#include "config/options.h"
#include "nets/parameters.h"

namespace vox {

enum class Algorithm { kSgd, kAdam, kAdamW };

struct OptimizerSlot {
  Parameter* parameter = nullptr;
  at::Tensor first, second, largest;  // momentum or mean; mean square; its maximum (amsgrad)
  bool decays = true;
};

struct OptimizerScalars {  // float32 on the device, but growth_tracker, which is int32
  at::Tensor lr, loss_scale, growth_tracker, found_inf, clip_factor, grad_norm, count, bad_steps, bad_in_a_row;
};

struct OptimizerState {
  TrainingOptions options;
  Algorithm algorithm = Algorithm::kAdamW;
  bool dynamic_scale = false;
  OptimizerScalars scalars;
  std::vector<OptimizerSlot> slots;
  at::Tensor workspace;  // of the kernels on a GPU
};

// GradScaler's constants.
constexpr double kFirstLossScale = 65536, kScaleGrowth = 2, kScaleBackoff = 0.5;
constexpr int64_t kScaleGrowthInterval = 2000;
constexpr double kClipEpsilon = 1e-6;  // as torch's clip_grad_norm_ adds

void update_cpu(OptimizerState& state);
void update_cuda(OptimizerState& state);  // nothing waits for the device

// The gradient, laid out as the weight: another order of elements would be read wrongly.
const float* aligned_grad(Parameter& parameter);

}  // namespace vox
