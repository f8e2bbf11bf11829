#include <torch/torch.h>

#include "base/error.h"
#include "ops/device.h"
#include "ops/parameter_ops.h"
#include "train/optimizer_update.h"

namespace vox {
namespace {

float* pointer(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

cuda::OptimizerTensor tensor_of(OptimizerSlot& slot) {
  Parameter& parameter = *slot.parameter;
  cuda::OptimizerTensor tensor;
  tensor.weight = pointer(parameter.master);
  tensor.first = pointer(slot.first);
  tensor.second = pointer(slot.second);
  tensor.largest = pointer(slot.largest);
  tensor.average = pointer(parameter.ema);
  if (!parameter.value.is_same(parameter.master)) {
    tensor.shadow = parameter.value.data_ptr();
    const bool bfloat = parameter.value.scalar_type() == at::kBFloat16;
    tensor.shadow_type = bfloat ? cuda::Scalar::kBFloat16 : cuda::Scalar::kFloat16;
  }
  tensor.decays = slot.decays;
  tensor.count = parameter.master.numel();
  return tensor;
}

cuda::OptimizerRule rule_of(const OptimizerState& state) {
  const TrainingOptions& options = state.options;
  cuda::OptimizerRule rule;
  rule.kind = state.algorithm == Algorithm::kSgd    ? cuda::OptimizerKind::kSgd
              : state.algorithm == Algorithm::kAdam ? cuda::OptimizerKind::kAdam
                                                    : cuda::OptimizerKind::kAdamW;
  rule.beta1 = options.betas[0];
  rule.beta2 = options.betas[1];
  rule.epsilon = options.epsilon;
  rule.momentum = options.momentum;
  rule.weight_decay = options.weight_decay;
  rule.average_share = 1 - options.ema;
  rule.average_warm_up = options.ema_warmup;
  rule.clip_norm = options.clip_norm;
  rule.clip_epsilon = kClipEpsilon;
  rule.nesterov = options.nesterov;
  rule.keras_epsilon = options.keras_epsilon;
  rule.dynamic_scale = state.dynamic_scale;
  rule.scale_growth = kScaleGrowth;
  rule.scale_backoff = kScaleBackoff;
  rule.scale_interval = kScaleGrowthInterval;
  return rule;
}

cuda::OptimizerNumbers numbers_of(const OptimizerScalars& scalars) {
  cuda::OptimizerNumbers numbers;
  numbers.lr = scalars.lr.const_data_ptr<float>();
  numbers.loss_scale = pointer(scalars.loss_scale);
  numbers.found_inf = pointer(scalars.found_inf);
  numbers.clip_factor = pointer(scalars.clip_factor);
  numbers.grad_norm = pointer(scalars.grad_norm);
  numbers.count = pointer(scalars.count);
  numbers.bad_steps = pointer(scalars.bad_steps);
  numbers.bad_in_a_row = pointer(scalars.bad_in_a_row);
  numbers.growth_tracker = scalars.growth_tracker.data_ptr<int32_t>();
  return numbers;
}

// Large enough for every parameter, whether it has a gradient in this step or not: its address never changes.
void* workspace_of(OptimizerState& state) {
  if (!state.workspace.defined()) {
    std::vector<cuda::OptimizerTensor> all;
    for (OptimizerSlot& slot : state.slots) all.push_back(tensor_of(slot));
    state.workspace = at::empty({cuda::optimizer_workspace(all)}, state.scalars.lr.options().dtype(at::kByte));
  }
  return state.workspace.data_ptr();
}

}  // namespace

void update_cuda(OptimizerState& state) {
  const at::NoGradGuard no_grad;
  std::vector<cuda::OptimizerTensor> tensors;
  for (OptimizerSlot& slot : state.slots) {
    if (!slot.parameter->grad.defined()) continue;
    cuda::OptimizerTensor tensor = tensor_of(slot);
    tensor.grad = aligned_grad(*slot.parameter);
    tensors.push_back(tensor);
  }
  cuda::optimizer_step(tensors, rule_of(state), numbers_of(state.scalars), workspace_of(state),
                       ops::current_stream(state.scalars.lr));
}

}  // namespace vox
