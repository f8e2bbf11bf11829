#include "train/optimizer.h"

#include <torch/torch.h>

#include "base/error.h"
#include "ops/device.h"
#include "train/ema.h"
#include "train/optimizer_update.h"

namespace vox {
namespace {

Algorithm parse_algorithm(const std::string& name) {
  if (name == "sgd") return Algorithm::kSgd;
  if (name == "adam") return Algorithm::kAdam;
  if (name == "adamw") return Algorithm::kAdamW;
  throw Error(concat("training.optimizer: there is sgd, adam and adamw, not \"", name, "\""));
}

OptimizerScalars make_scalars(const at::Device& device, double loss_scale) {
  const auto number = [&](double value, at::ScalarType type = at::kFloat) {
    return at::full({}, value, at::TensorOptions(type).device(device));
  };
  OptimizerScalars scalars;
  scalars.lr = number(0);
  scalars.loss_scale = number(loss_scale);
  scalars.growth_tracker = number(0, at::kInt);
  scalars.found_inf = number(0);
  scalars.clip_factor = number(1);
  scalars.grad_norm = number(0);
  scalars.count = number(0);
  scalars.bad_steps = number(0);
  scalars.bad_in_a_row = number(0);
  return scalars;
}

void check_options(const TrainingOptions& options) {
  VOX_CHECK(options.betas.size() == 2, "training.betas has ", options.betas.size(), " numbers; expected two");
  for (const double beta : options.betas) {
    VOX_CHECK(beta >= 0 && beta < 1, "training.betas has ", beta, "; expected 0 or more, and below 1");
  }
  VOX_CHECK(options.ema >= 0 && options.ema < 1, "training.ema is ", options.ema, "; expected a decay below 1");
}

OptimizerSlot make_slot(const OptimizerState& state, Parameter& parameter) {
  const TrainingOptions& options = state.options;
  const bool adam = state.algorithm != Algorithm::kSgd;
  OptimizerSlot slot;
  slot.parameter = &parameter;
  slot.decays = options.decay_norms_and_biases || parameter.spec.kind == ParameterKind::kConvWeight;
  const at::Tensor weight = parameter.master.detach();
  if (adam || options.momentum != 0) slot.first = at::zeros_like(weight);
  if (adam) slot.second = at::zeros_like(weight);
  if (adam && options.amsgrad) slot.largest = at::zeros_like(weight);
  return slot;
}

}  // namespace

struct Optimizer::Impl {
  OptimizerState state;
  bool on_cpu = true;
};

Optimizer::Optimizer(const TrainingOptions& options, ParameterSet& parameters, Precision precision)
    : impl_(std::make_unique<Impl>()) {
  check_options(options);
  OptimizerState& state = impl_->state;
  state.options = options;
  state.options.nesterov = options.nesterov && options.momentum != 0;
  state.algorithm = parse_algorithm(options.optimizer);
  state.dynamic_scale = precision == Precision::k16Mixed;
  state.scalars = make_scalars(parameters.device(), state.dynamic_scale ? kFirstLossScale : 1.0);
  impl_->on_cpu = parameters.device().is_cpu();
  VOX_CHECK(impl_->on_cpu || cuda::kCompiledIn,
            "this build of the program has no kernels for a GPU; build it with the preset gpu, or use --device cpu");
  if (options.ema > 0) parameters.start_ema();
  for (Parameter& parameter : parameters.all()) {
    if (!parameter.spec.cancelled && is_trained(parameter.spec.kind))
      state.slots.push_back(make_slot(state, parameter));
  }
}

Optimizer::~Optimizer() = default;

void Optimizer::set_lr(double lr) {
  impl_->state.scalars.lr.fill_(lr);
}

at::Tensor Optimizer::scaled(const at::Tensor& loss) const {
  return impl_->state.dynamic_scale ? loss * impl_->state.scalars.loss_scale : loss;
}

bool Optimizer::scales_loss() const {
  return impl_->state.dynamic_scale;
}

void Optimizer::step() {
  if (impl_->on_cpu) return update_cpu(impl_->state);
  if constexpr (cuda::kCompiledIn) update_cuda(impl_->state);
}

const at::Tensor& Optimizer::lr() const {
  return impl_->state.scalars.lr;
}
const at::Tensor& Optimizer::grad_norm() const {
  return impl_->state.scalars.grad_norm;
}
const at::Tensor& Optimizer::found_inf() const {
  return impl_->state.scalars.found_inf;
}
const at::Tensor& Optimizer::count() const {
  return impl_->state.scalars.count;
}
const at::Tensor& Optimizer::bad_steps() const {
  return impl_->state.scalars.bad_steps;
}
const at::Tensor& Optimizer::bad_in_a_row() const {
  return impl_->state.scalars.bad_in_a_row;
}
const at::Tensor& Optimizer::loss_scale() const {
  return impl_->state.scalars.loss_scale;
}

std::vector<std::pair<std::string, at::Tensor>> Optimizer::state() const {
  const OptimizerState& state = impl_->state;
  const bool sgd = state.algorithm == Algorithm::kSgd;
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const OptimizerSlot& slot : state.slots) {
    const std::string& name = slot.parameter->name();
    if (slot.first.defined()) all.emplace_back(name + (sgd ? ".momentum" : ".exp_avg"), slot.first);
    if (slot.second.defined()) all.emplace_back(name + ".exp_avg_sq", slot.second);
    if (slot.largest.defined()) all.emplace_back(name + ".max_exp_avg_sq", slot.largest);
  }
  const OptimizerScalars& scalars = state.scalars;
  all.emplace_back("count", scalars.count);
  all.emplace_back("loss_scale", scalars.loss_scale);
  all.emplace_back("growth_tracker", scalars.growth_tracker);
  all.emplace_back("bad_steps", scalars.bad_steps);
  all.emplace_back("bad_in_a_row", scalars.bad_in_a_row);
  return all;
}

EmaScope::EmaScope(ParameterSet& parameters) : parameters_(parameters) {
  exchange();
}

EmaScope::~EmaScope() {
  exchange();
}

void EmaScope::exchange() {
  const at::NoGradGuard no_grad;
  bool any = false;
  for (Parameter& parameter : parameters_.all()) {
    if (!parameter.ema.defined()) continue;
    const at::Tensor own = parameter.master.detach().clone();
    parameter.master.copy_(parameter.ema);  // in place: a captured graph keeps the addresses
    parameter.ema.copy_(own);
    any = true;
  }
  if (any) parameters_.refresh_shadows();
}

}  // namespace vox
