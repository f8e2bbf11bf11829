#include <torch/torch.h>

#include "base/error.h"
#include "train/optimizer_update.h"

namespace vox {
namespace {

struct Lists {
  std::vector<at::Tensor> weights, grads, first, second, largest, counts;
};

Lists lists_of(OptimizerState& state, bool decays) {
  Lists lists;
  for (OptimizerSlot& slot : state.slots) {
    if (!slot.parameter->grad.defined() || slot.decays != decays) continue;
    lists.weights.push_back(slot.parameter->master);
    lists.grads.push_back(slot.parameter->grad);
    if (slot.first.defined()) lists.first.push_back(slot.first);
    if (slot.second.defined()) lists.second.push_back(slot.second);
    if (slot.largest.defined()) lists.largest.push_back(slot.largest);
    lists.counts.push_back(state.scalars.count);  // the operators only read it
  }
  return lists;
}

void measure_gradients(OptimizerState& state) {
  OptimizerScalars& scalars = state.scalars;
  std::vector<at::Tensor> grads;
  for (OptimizerSlot& slot : state.slots) {
    if (slot.parameter->grad.defined()) grads.push_back(slot.parameter->grad);
  }
  if (grads.empty()) {
    scalars.grad_norm.zero_();
  } else {
    scalars.grad_norm.copy_(at::stack(at::_foreach_norm(grads, 2)).norm() / scalars.loss_scale);
  }
  const at::Tensor bad = at::isfinite(scalars.grad_norm).logical_not();
  scalars.found_inf.copy_(bad);
  scalars.clip_factor.fill_(1);
  if (state.options.clip_norm > 0) {
    const at::Tensor clip = (state.options.clip_norm / (scalars.grad_norm + kClipEpsilon)).clamp_max(1);
    scalars.clip_factor.copy_(at::where(bad, scalars.clip_factor, clip));
  }
  scalars.count.add_(1 - scalars.found_inf);
  scalars.bad_steps.add_(scalars.found_inf);
  scalars.bad_in_a_row.add_(1).mul_(scalars.found_inf);
}

void update_fused(OptimizerState& state, bool decays, const at::Tensor& grad_divisor) {
  const TrainingOptions& o = state.options;
  const double decay = decays ? o.weight_decay : 0;
  const OptimizerScalars& s = state.scalars;
  Lists lists = lists_of(state, decays);
  if (lists.weights.empty()) return;
  if (state.algorithm == Algorithm::kSgd) {
    at::_fused_sgd_(lists.weights, lists.grads, lists.first, decay, o.momentum, s.lr, 0.0, o.nesterov, false, false,
                    grad_divisor, s.found_inf);
  } else if (state.algorithm == Algorithm::kAdam) {
    at::_fused_adam_(lists.weights, lists.grads, lists.first, lists.second, lists.largest, lists.counts, s.lr,
                     o.betas[0], o.betas[1], decay, o.epsilon, o.amsgrad, false, grad_divisor, s.found_inf);
  } else {
    at::_fused_adamw_(lists.weights, lists.grads, lists.first, lists.second, lists.largest, lists.counts, s.lr,
                      o.betas[0], o.betas[1], decay, o.epsilon, o.amsgrad, false, grad_divisor, s.found_inf);
  }
}

// The Keras form of epsilon has no fused operator: tensor by tensor, and the old value where the step is bad.
void update_keras(OptimizerState& state, const at::Tensor& grad_divisor) {
  const TrainingOptions& o = state.options;
  const OptimizerScalars& s = state.scalars;
  const at::Tensor bad = s.found_inf.to(at::kBool);
  const at::Tensor step_size = s.lr * (1 - at::pow(o.betas[1], s.count)).sqrt() / (1 - at::pow(o.betas[0], s.count));
  for (OptimizerSlot& slot : state.slots) {
    if (!slot.parameter->grad.defined()) continue;
    at::Tensor& weight = slot.parameter->master;
    const double decay = slot.decays ? o.weight_decay : 0;
    at::Tensor grad = slot.parameter->grad / grad_divisor, shrunk = weight;
    if (state.algorithm == Algorithm::kAdamW) {
      shrunk = weight * (1 - s.lr * decay);
    } else if (decay != 0) {
      grad = grad + decay * weight;
    }
    const at::Tensor first = slot.first.lerp(grad, 1 - o.betas[0]);
    const at::Tensor second = (slot.second * o.betas[1]).addcmul_(grad, grad, 1 - o.betas[1]);
    at::Tensor square = second;
    if (slot.largest.defined()) {
      square = at::maximum(slot.largest, second);
      slot.largest.copy_(at::where(bad, slot.largest, square));
    }
    weight.copy_(at::where(bad, weight, shrunk - step_size * first / (square.sqrt() + o.epsilon)));
    slot.first.copy_(at::where(bad, slot.first, first));
    slot.second.copy_(at::where(bad, slot.second, second));
  }
}

void follow_weights(OptimizerState& state) {
  std::vector<at::Tensor> shadows, masters;
  const at::Tensor share = (1 - state.options.ema) * (1 - state.scalars.found_inf);
  for (OptimizerSlot& slot : state.slots) {
    Parameter& parameter = *slot.parameter;
    if (!parameter.grad.defined()) continue;
    if (parameter.ema.defined()) parameter.ema.lerp_(parameter.master, share);
    if (parameter.value.is_same(parameter.master)) continue;
    shadows.push_back(parameter.value);
    masters.push_back(parameter.master);
  }
  if (!shadows.empty()) at::_foreach_copy_(shadows, masters);
}

}  // namespace

void update_aten(OptimizerState& state) {
  const at::NoGradGuard no_grad;
  measure_gradients(state);
  const at::Tensor grad_divisor = state.scalars.loss_scale / state.scalars.clip_factor;
  if (state.options.keras_epsilon && state.algorithm != Algorithm::kSgd) {
    update_keras(state, grad_divisor);
  } else {
    for (const bool decays : {false, true}) update_fused(state, decays, grad_divisor);
  }
  follow_weights(state);
  if (state.dynamic_scale) {
    at::_amp_update_scale_(state.scalars.loss_scale, state.scalars.growth_tracker, state.scalars.found_inf,
                           kScaleGrowth, kScaleBackoff, kScaleGrowthInterval);
  }
}

}  // namespace vox
