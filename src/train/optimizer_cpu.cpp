#include <torch/torch.h>

#include <cmath>

#include "base/error.h"
#include "ops/parallel.h"
#include "train/optimizer_kernels.h"
#include "train/optimizer_update.h"

namespace vox {
namespace {

constexpr int64_t kPiece = 1 << 15;  // elements; fixed, so that sums do not depend on the number of threads

struct Piece {
  OptimizerSlot* slot;
  PieceArrays arrays;
};

ShadowType shadow_type(const Parameter& parameter) {
  if (parameter.value.is_same(parameter.master)) return ShadowType::kNone;
  return parameter.value.scalar_type() == at::kBFloat16 ? ShadowType::kBFloat16 : ShadowType::kFloat16;
}

std::vector<Piece> cut_into_pieces(OptimizerState& state) {
  const at::NoGradGuard no_grad;
  const auto pointer = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr<float>() : nullptr; };
  std::vector<Piece> pieces;
  for (OptimizerSlot& slot : state.slots) {
    Parameter& parameter = *slot.parameter;
    if (!parameter.grad.defined()) continue;
    PieceArrays whole;
    whole.grad = aligned_grad(parameter);
    whole.weight = pointer(parameter.master);
    whole.first = pointer(slot.first);
    whole.second = pointer(slot.second);
    whole.largest = pointer(slot.largest);
    whole.average = pointer(parameter.ema);
    whole.shadow_type = shadow_type(parameter);
    if (whole.shadow_type != ShadowType::kNone) whole.shadow = static_cast<uint16_t*>(parameter.value.data_ptr());
    const int64_t total = parameter.master.numel();
    for (int64_t begin = 0; begin < total; begin += kPiece) {
      PieceArrays part = whole;
      part.count = std::min(kPiece, total - begin);
      part.weight += begin;
      part.grad += begin;
      if (part.first) part.first += begin;
      if (part.second) part.second += begin;
      if (part.largest) part.largest += begin;
      if (part.average) part.average += begin;
      if (part.shadow) part.shadow += begin;
      pieces.push_back({&slot, part});
    }
  }
  return pieces;
}

template <class Function>
void for_each_piece(const std::vector<Piece>& pieces, const Function& function) {
  ops::for_each_piece(static_cast<int64_t>(pieces.size()), [&](int64_t i) { function(static_cast<size_t>(i)); });
}

double gradient_norm(const std::vector<Piece>& pieces) {
  std::vector<double> sums(pieces.size());
  for_each_piece(pieces, [&](size_t i) { sums[i] = sum_of_squares(pieces[i].arrays.grad, pieces[i].arrays.count); });
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

AdamConstants adam_constants(const OptimizerState& state, double grad_factor, bool decays) {
  const TrainingOptions& options = state.options;
  const double lr = state.scalars.lr.item<float>(), count = state.scalars.count.item<float>();
  const double decay = decays ? options.weight_decay : 0;
  const double correction1 = 1 - std::pow(options.betas[0], count);
  const double root2 = std::sqrt(1 - std::pow(options.betas[1], count));
  AdamConstants constants;
  constants.grad_factor = static_cast<float>(grad_factor);
  if (state.algorithm == Algorithm::kAdamW) {
    constants.shrink = static_cast<float>(1 - lr * decay);
  } else {
    constants.decay = static_cast<float>(decay);
  }
  constants.beta1 = static_cast<float>(options.betas[0]);
  constants.beta2 = static_cast<float>(options.betas[1]);
  constants.epsilon = static_cast<float>(options.epsilon);
  constants.step_size = static_cast<float>(options.keras_epsilon ? lr * root2 / correction1 : lr / correction1);
  constants.root_factor = static_cast<float>(options.keras_epsilon ? 1 : 1 / root2);
  return constants;
}

SgdConstants sgd_constants(const OptimizerState& state, double grad_factor, bool decays) {
  const TrainingOptions& options = state.options;
  SgdConstants constants;
  constants.grad_factor = static_cast<float>(grad_factor);
  constants.lr = state.scalars.lr.item<float>();
  constants.decay = static_cast<float>(decays ? options.weight_decay : 0);
  constants.momentum = static_cast<float>(options.momentum);
  constants.nesterov = options.nesterov;
  return constants;
}

float average_share(const OptimizerState& state) {
  const double count = state.scalars.count.item<float>(), warm_up = state.options.ema_warmup;
  return static_cast<float>(std::max(1 - state.options.ema, warm_up / (warm_up + 1 + count)));
}

void update_weights(const OptimizerState& state, const std::vector<Piece>& pieces, double grad_factor) {
  const float share = average_share(state);
  if (state.algorithm == Algorithm::kSgd) {
    const SgdConstants constants[2] = {sgd_constants(state, grad_factor, false),
                                       sgd_constants(state, grad_factor, true)};
    for_each_piece(pieces, [&](size_t i) {
      sgd_piece(pieces[i].arrays, constants[pieces[i].slot->decays]);
      finish_piece(pieces[i].arrays, share);
    });
    return;
  }
  const AdamConstants constants[2] = {adam_constants(state, grad_factor, false),
                                      adam_constants(state, grad_factor, true)};
  for_each_piece(pieces, [&](size_t i) {
    adam_piece(pieces[i].arrays, constants[pieces[i].slot->decays]);
    finish_piece(pieces[i].arrays, share);
  });
}

void update_scale(const OptimizerScalars& scalars, bool bad) {
  float& scale = *scalars.loss_scale.data_ptr<float>();
  int32_t& good_steps = *scalars.growth_tracker.data_ptr<int32_t>();
  if (bad) {
    scale *= static_cast<float>(kScaleBackoff);
    good_steps = 0;
  } else if (++good_steps == kScaleGrowthInterval) {
    const float grown = scale * static_cast<float>(kScaleGrowth);
    if (std::isfinite(grown)) scale = grown;
    good_steps = 0;
  }
}

}  // namespace

const float* aligned_grad(Parameter& parameter) {
  if (parameter.grad.strides() != parameter.master.strides() || parameter.grad.scalar_type() != at::kFloat) {
    parameter.grad = at::empty_like(parameter.master).copy_(parameter.grad);
  }
  return parameter.grad.data_ptr<float>();
}

// The scalars are in the host's memory here: reading them waits for nothing.
void update_cpu(OptimizerState& state) {
  OptimizerScalars& scalars = state.scalars;
  const std::vector<Piece> pieces = cut_into_pieces(state);
  const double unscale = 1.0 / scalars.loss_scale.item<float>();
  const double norm = gradient_norm(pieces) * unscale;
  const bool bad = !std::isfinite(norm);
  const double limit = state.options.clip_norm;
  const double clip = bad || limit <= 0 ? 1.0 : std::min(1.0, limit / (norm + kClipEpsilon));
  const at::NoGradGuard no_grad;
  scalars.grad_norm.fill_(norm);
  scalars.found_inf.fill_(bad ? 1 : 0);
  scalars.clip_factor.fill_(clip);
  scalars.bad_steps.add_(bad ? 1 : 0);
  scalars.bad_in_a_row.add_(1).mul_(bad ? 1 : 0);
  if (!bad) {
    scalars.count.add_(1);
    update_weights(state, pieces, unscale * clip);
  }
  if (state.dynamic_scale) update_scale(scalars, bad);
}

}  // namespace vox
