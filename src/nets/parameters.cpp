#include "nets/parameters.h"

#include <torch/torch.h>

#include <algorithm>

#include "base/error.h"
#include "ops/gradient_places.h"
#include "ops/parameter_ops.h"

namespace vox {
namespace {

bool stays_full(const ParameterSpec& spec) {
  switch (spec.kind) {
    case ParameterKind::kConvWeight:
    case ParameterKind::kBias:
    case ParameterKind::kConstant:
      return spec.full_precision;
    default:
      return true;
  }
}

std::string shape_text(at::IntArrayRef shape) {
  return concat(shape);
}

}  // namespace

bool is_running(ParameterKind kind) {
  return kind == ParameterKind::kRunningMean || kind == ParameterKind::kRunningVariance ||
         kind == ParameterKind::kBatchCount;
}

bool is_trained(ParameterKind kind) {
  return !is_running(kind) && kind != ParameterKind::kConstant;
}

int ParameterSet::add(const ParameterSpec& spec) {
  const int index = static_cast<int>(parameters_.size());
  VOX_ASSERT(index_.emplace(spec.name, index).second);
  Parameter parameter;
  parameter.spec = spec;
  parameter.master = at::zeros(spec.shape, at::kFloat);
  make_leaf(parameter);
  parameters_.push_back(std::move(parameter));
  return index;
}

Parameter* ParameterSet::find(const std::string& name) {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &parameters_[static_cast<size_t>(found->second)];
}

int64_t ParameterSet::count() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters_)
    if (is_trained(parameter.spec.kind)) count += parameter.master.numel();
  return count;
}

bool ParameterSet::has_running_statistics() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const Parameter& parameter) { return is_running(parameter.spec.kind); });
}

void ParameterSet::make_leaf(Parameter& parameter) {
  parameter.grad.reset();
  grad_buffers_.clear();
  if (places_) places_->withdraw();
  parameter.master = parameter.master.detach();
  if (is_running(parameter.spec.kind)) {
    parameter.value = parameter.master.clone();
  } else if (compute_type_ == at::kFloat || stays_full(parameter.spec)) {
    parameter.value = parameter.master;
  } else {
    parameter.value = parameter.master.to(compute_type_);
  }
  parameter.value.set_requires_grad(is_trained(parameter.spec.kind));
}

void ParameterSet::set_compute_type(at::ScalarType type) {
  VOX_ASSERT(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
  compute_type_ = type;
  for (Parameter& parameter : parameters_) make_leaf(parameter);
}

void ParameterSet::to(const at::Device& target) {
  for (Parameter& parameter : parameters_) {
    parameter.master = parameter.master.detach().to(target);
    if (parameter.ema.defined()) parameter.ema = parameter.ema.to(target);
    make_leaf(parameter);
  }
}

at::Device ParameterSet::device() const {
  return parameters_.empty() ? at::Device(at::kCPU) : parameters_.front().master.device();
}

void ParameterSet::to(at::MemoryFormat format) {
  format_ = format;
  for (Parameter& parameter : parameters_) {
    if (parameter.master.dim() != 5) continue;
    parameter.master = parameter.master.detach().contiguous(format);
    if (parameter.ema.defined()) parameter.ema = parameter.ema.contiguous(format);
    make_leaf(parameter);
  }
}

void ParameterSet::make_grad_buffers() {
  constexpr int64_t kAlignment = 64;  // floats, so that every tensor starts at a line of the cache
  const auto padded = [](int64_t count) { return (count + kAlignment - 1) / kAlignment * kAlignment; };
  int64_t total = 0;
  for (const Parameter& parameter : parameters_)
    if (is_trained(parameter.spec.kind)) total += padded(parameter.master.numel());
  const at::Tensor all = at::empty({total}, at::TensorOptions(at::kFloat).device(device()));
  int64_t offset = 0;
  for (const Parameter& parameter : parameters_) {
    at::Tensor& buffer = grad_buffers_.emplace_back();
    if (!is_trained(parameter.spec.kind)) continue;
    buffer = all.as_strided(parameter.master.sizes(), parameter.master.strides(), offset);
    offset += padded(parameter.master.numel());
  }
}

const at::Tensor& ParameterSet::grad_buffer(int index) {
  if (grad_buffers_.empty()) make_grad_buffers();
  return grad_buffers_[static_cast<size_t>(index)];
}

void ParameterSet::collect_into_buffers() {
  std::vector<ops::GradientMove> moves;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    at::Tensor& left = parameter.value.mutable_grad();
    if (places_ && places_->take(parameter.value)) parameter.grad = grad_buffer(static_cast<int>(i));
    if (!left.defined()) continue;
    const at::Tensor& buffer = grad_buffer(static_cast<int>(i));
    const bool there = left.data_ptr() == buffer.data_ptr();  // whoever made it added to what was there
    if (!there) moves.push_back({buffer, left, parameter.grad.defined()});
    parameter.grad = buffer;
    left.reset();
  }
  if constexpr (cuda::kCompiledIn) ops::move_gradients(moves);
  offer_buffers();
}

// To the layers that can write gradients where they belong.
void ParameterSet::offer_buffers() {
  if (!places_) places_ = std::make_shared<ops::GradientPlaces>();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const bool shadowed = is_trained(parameter.spec.kind) && !parameter.value.is_same(parameter.master);
    if (shadowed) places_->offer(parameter.value, grad_buffer(static_cast<int>(i)), parameter.grad.defined());
  }
}

void ParameterSet::collect_grads() {
  const at::NoGradGuard no_grad;
  if (cuda::kCompiledIn && device().is_cuda()) return collect_into_buffers();
  for (Parameter& parameter : parameters_) {
    at::Tensor& left = parameter.value.mutable_grad();
    if (!left.defined()) continue;
    if (parameter.value.is_same(parameter.master)) {
      parameter.grad = left;  // autograd itself adds to it at the next backward
      continue;
    }
    if (parameter.grad.defined()) {
      parameter.grad.add_(left);
    } else {
      parameter.grad = at::empty_like(parameter.master).copy_(left);
    }
    left.reset();
  }
}

void ParameterSet::zero_grads() {
  for (Parameter& parameter : parameters_) {
    parameter.grad.reset();
    parameter.value.mutable_grad().reset();
  }
  if (cuda::kCompiledIn && device().is_cuda()) offer_buffers();
}

namespace {

void settle_on_gpu(const std::vector<Parameter>& parameters, const at::Tensor& bad) {
  std::vector<ops::SettledStatistic> statistics;
  for (const Parameter& parameter : parameters) {
    if (!is_running(parameter.spec.kind)) continue;
    const float step = parameter.spec.kind == ParameterKind::kBatchCount ? 1.0f : 0.0f;
    statistics.push_back({parameter.value, parameter.master, step});
  }
  if constexpr (cuda::kCompiledIn) ops::settle_statistics(statistics, bad);
}

}  // namespace

void ParameterSet::settle_statistics(const at::Tensor& bad) {
  const at::NoGradGuard no_grad;
  if (cuda::kCompiledIn && device().is_cuda()) return settle_on_gpu(parameters_, bad);
  const at::Tensor good = bad.reshape({}) == 0;
  for (Parameter& parameter : parameters_) {
    if (!is_running(parameter.spec.kind)) continue;
    if (parameter.spec.kind == ParameterKind::kBatchCount) parameter.value.add_(1);
    parameter.value.copy_(at::where(good, parameter.value, parameter.master));
    parameter.master.copy_(parameter.value);
  }
}

void ParameterSet::refresh_shadows() {
  const at::NoGradGuard no_grad;
  for (Parameter& parameter : parameters_) {
    if (!parameter.value.is_same(parameter.master)) parameter.value.copy_(parameter.master);
  }
}

void ParameterSet::start_ema() {
  for (Parameter& parameter : parameters_)
    if (is_trained(parameter.spec.kind)) parameter.ema = parameter.master.detach().clone();
}

void ParameterSet::load(const std::string& name, const at::Tensor& values) {
  Parameter* parameter = find(name);
  VOX_CHECK(parameter != nullptr, "the network has no parameter \"", name, "\"");
  VOX_CHECK(parameter->master.sizes() == values.sizes(), "parameter \"", name, "\" is ", shape_text(values.sizes()),
            " in the file but ", shape_text(parameter->master.sizes()),
            " in the network; were model.filters or another model option changed?");
  const at::NoGradGuard no_grad;
  parameter->master.copy_(values);
  if (!parameter->value.is_same(parameter->master)) parameter->value.copy_(parameter->master);
}

}  // namespace vox
