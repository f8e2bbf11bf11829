#include <torch/torch.h>

#include "kernels/norm_cuda.h"
#include "ops/checkpoint.h"
#include "ops/device.h"
#include "ops/fused.h"
#include "ops/fused_cuda.h"

namespace vox::ops::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What forward and backward of one norm share; the tensors here take no part in autograd.
struct NormCall : torch::CustomClassHolder {
  cuda::NormRule rule;
  cuda::Act act;
  bool frozen = false;  // a batch norm outside training: its statistics are given
  bool defers = false, residual_learns = false;
  at::Tensor running_mean, running_variance, moments;
  at::Tensor statistics;  // float32 [4, N, C]: mean, rstd, scale, shift
  std::shared_ptr<NormBackward> backward = std::make_shared<NormBackward>();
};
using NormCallPtr = c10::intrusive_ptr<NormCall>;

using OptionalTensor = std::optional<at::Tensor>;  // what autograd wants for an argument that may be absent
at::Tensor given(const OptionalTensor& tensor) {
  return tensor ? *tensor : at::Tensor();
}
OptionalTensor if_given(const at::Tensor* tensor) {
  return tensor && tensor->defined() ? OptionalTensor(*tensor) : std::nullopt;
}

cuda::NormState state_of(const at::Tensor& statistics) {
  float* const all = floats(statistics);
  const int64_t each = statistics.size(1) * statistics.size(2);
  return {all, all + each, all + 2 * each, all + 3 * each};
}

cuda::NormRule rule_with(const NormCall& call, const at::Tensor& gamma, const at::Tensor& beta) {
  cuda::NormRule rule = call.rule;
  rule.gamma = floats(gamma);
  rule.beta = floats(beta);
  return rule;
}

cuda::Act act_with(const NormCall& call, const at::Tensor& slope) {
  cuda::Act act = call.act;
  act.slopes = floats(slope);
  return act;
}

void find_statistics(NormCall& call, const at::Tensor& raw, const cuda::NormRule& rule) {
  const cuda::Shape5 shape = shape_of(raw);
  const cuda::Stream stream = current_stream(raw);
  call.statistics = at::empty({4, shape.n, shape.c}, raw.options().dtype(at::kFloat));
  const cuda::NormState state = state_of(call.statistics);
  if (call.frozen) {
    cuda::state_from_running(floats(call.running_mean), floats(call.running_variance), shape, rule, state, stream);
    return;
  }
  if (!call.moments.defined()) {
    call.moments = at::empty({shape.n, cuda::moment_rows(shape), 3, shape.c}, raw.options().dtype(at::kFloat));
    cuda::moments(memory(raw), scalar_of(raw), shape, floats(call.moments), stream);
  }
  cuda::finish_moments(floats(call.moments), call.moments.size(1), shape, rule, state, stream);
  call.moments.reset();
}

// What the layer that dy came from has summed of it already; undefined: nothing, or of a part of dy alone.
at::Tensor sums_left(const NormCall& call, const at::Tensor& dy) {
  const at::Tensor sums = std::exchange(call.backward->sums, at::Tensor());
  return call.backward->readers == 1 && call.backward->gradient == memory(dy) ? sums : at::Tensor();
}

struct FusedNorm : torch::autograd::Function<FusedNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& raw, const OptionalTensor& gamma,
                            const OptionalTensor& beta, const OptionalTensor& slope, const OptionalTensor& residual,
                            const OptionalTensor& bias, const NormCallPtr& call) {
    find_statistics(*call, raw, rule_with(*call, given(gamma), given(beta)));
    if (bias && call->running_mean.defined()) call->running_mean.add_(*bias, static_cast<double>(call->rule.momentum));
    context->save_for_backward({raw, given(gamma), given(slope), given(residual), given(bias)});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    if (call->defers) return at::empty_strided(raw.sizes(), {0, 0, 0, 0, 0}, raw.options());
    at::Tensor result = at::empty_like(raw);
    const cuda::NormState state = state_of(call->statistics);
    cuda::apply_norm(memory(raw), memory(given(residual)), memory(result), scalar_of(raw), shape_of(raw), state.scale,
                     state.shift, act_with(*call, given(slope)), current_stream(raw));
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    variable_list result(7);
    if (!grads[0].defined()) return result;
    const auto capsule = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const NormCall&>(*capsule);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &raw = saved[0], &gamma = saved[1], &slope = saved[2], &residual = saved[3];
    const bool owned = is_ours_alone(grads[0]);
    const at::Tensor dy = channels_last(grads[0]);
    const cuda::NormGradInput input{memory(dy),           memory(raw),   memory(residual),
                                    scalar_of(raw),       shape_of(raw), state_of(call.statistics),
                                    act_with(call, slope)};
    const cuda::Stream stream = current_stream(raw);
    const at::TensorOptions options = call.statistics.options();
    const int64_t n = input.shape.n, c = input.shape.c, terms = slope.defined() ? 3 : 2;
    at::Tensor partials = sums_left(call, dy);
    const bool summed = partials.defined();
    if (!summed) partials = at::empty({n, cuda::norm_grad_rows(input.shape), terms, c}, options);
    const at::Tensor coefficients = at::empty({3, n, c}, options);
    if (gamma.defined()) result[1] = at::empty_like(gamma);
    if (gamma.defined()) result[2] = at::empty_like(gamma);
    if (slope.defined()) result[3] = at::empty_like(slope);
    if (saved[4].defined()) result[5] = at::zeros_like(saved[4]);
    if (!summed) cuda::norm_grad_sums(input, floats(partials), stream);
    cuda::finish_norm_grad(floats(partials), partials.size(1), input, rule_with(call, gamma, at::Tensor()), call.frozen,
                           {floats(result[1]), floats(result[2]), floats(result[3]), floats(coefficients)}, stream);
    result[0] = owned ? dy : at::empty_like(raw);  // element by element: it may take the place of what it read
    if (call.residual_learns) result[4] = at::empty_like(residual);
    cuda::norm_grad_apply(input, floats(coefficients), memory(result[0]), memory(result[4]), stream);
    return result;
  }
};

struct Materialize : torch::autograd::Function<Materialize> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& activation, const at::Tensor& raw,
                            const at::Tensor& scale, const at::Tensor& shift, double slope) {
    at::Tensor result = at::empty(activation.sizes(), raw.options(), at::MemoryFormat::ChannelsLast3d);
    const cuda::Act act{.kind = slope == 1 ? cuda::ActKind::kNone : cuda::ActKind::kLeakyRelu,
                        .slope = static_cast<float>(slope)};
    cuda::apply_norm(memory(raw), nullptr, memory(result), scalar_of(raw), shape_of(raw), floats(scale), floats(shift),
                     act, current_stream(raw));
    return result;
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {grads[0], at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

cuda::Act act_of(const ActivationLayer& layer) {
  switch (layer.kind) {
    case Activation::kNone:
      return {};
    case Activation::kLeakyRelu:
      return {.kind = cuda::ActKind::kLeakyRelu, .slope = static_cast<float>(layer.negative_slope)};
    case Activation::kRelu:
      return {.kind = cuda::ActKind::kLeakyRelu, .slope = 0};
    case Activation::kGelu:
      return {.kind = cuda::ActKind::kGelu};
    case Activation::kPrelu:
      return {.kind = cuda::ActKind::kPrelu, .slope_per_channel = layer.slope->numel() > 1};
    case Activation::kElu:
      return {.kind = cuda::ActKind::kElu};
    case Activation::kSilu:
      return {.kind = cuda::ActKind::kSilu};
  }
  return {};
}

NormCallPtr make_call(const RawOutput& raw, const Epilogue& epilogue) {
  const NormLayer& norm = epilogue.norm;
  NormCallPtr call = c10::make_intrusive<NormCall>();
  call->rule.epsilon = static_cast<float>(norm.epsilon);
  call->rule.groups = static_cast<int>(norm.groups);
  call->act = act_of(epilogue.activation);
  call->moments = raw.moments;
  call->defers =
      !epilogue.residual && (call->act.kind == cuda::ActKind::kNone || call->act.kind == cuda::ActKind::kLeakyRelu);
  if (norm.kind == NormKind::kGroup) call->rule.over = cuda::NormOver::kGroup;
  if (norm.kind != NormKind::kBatch) return call;
  call->rule.over = cuda::NormOver::kBatch;
  call->frozen = !norm.training;
  // A segment that runs a second time must not move the running statistics twice.
  if (norm.running_mean && (!norm.training || !recomputing())) {
    call->running_mean = norm.running_mean->detach();
    call->running_variance = norm.running_variance->detach();
    call->rule.momentum = static_cast<float>(norm.momentum);
    if (norm.training) {
      call->rule.running_mean = floats(call->running_mean);
      call->rule.running_variance = floats(call->running_variance);
    }
  }
  return call;
}

}  // namespace

at::Tensor in_its_layout(const at::Tensor& raw) {
  const bool half = raw.scalar_type() == at::kBFloat16 || raw.scalar_type() == at::kHalf;
  return raw.is_cuda() && half ? channels_last(raw) : raw;
}

bool normalizes(const at::Tensor& raw, const Epilogue& epilogue) {
  const NormLayer& norm = epilogue.norm;
  const bool dropped = epilogue.dropout.rate > 0 && !epilogue.dropout.before_norm;
  const bool full = !norm.scale || norm.scale->scalar_type() == at::kFloat;
  return norm.kind != NormKind::kNone && !dropped && full && is_ours(raw);
}

Feature normalize(const RawOutput& raw, const Epilogue& epilogue) {
  const NormCallPtr call = make_call(raw, epilogue);
  OptionalTensor residual;
  if (epilogue.residual) {
    residual = channels_last(epilogue.residual->materialize().to(raw.values.scalar_type()));
    call->residual_learns = residual->requires_grad();
  }
  const at::Tensor result = FusedNorm::apply(raw.values, if_given(epilogue.norm.scale), if_given(epilogue.norm.shift),
                                             if_given(epilogue.activation.slope), residual, if_given(&raw.bias), call);
  if (!call->defers) return Feature::plain(result);
  const double slope = call->act.kind == cuda::ActKind::kNone ? 1.0 : static_cast<double>(call->act.slope);
  call->backward->statistics = call->statistics;
  return Feature::from({.values = {},
                        .deferred = Deferred{result, raw.values.detach(), call->statistics[2], call->statistics[3],
                                             slope, call->backward}});
}

at::Tensor materialize(const Deferred& deferred) {
  if (deferred.norm) ++deferred.norm->readers;  // null: a layer's backward makes its input once more
  return Materialize::apply(deferred.activation, deferred.raw, deferred.scale, deferred.shift, deferred.slope);
}

}  // namespace vox::ops::fused
