#include "ops/feature.h"

#include <torch/torch.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace vox::ops {
namespace {

std::array<int64_t, 3> sizes(const Extent3& extent) {
  return {extent.z, extent.y, extent.x};
}

at::Tensor activate_in_place(at::Tensor values, const Epilogue& epilogue) {
  switch (epilogue.activation) {
    case Activation::kNone:
      return values;
    case Activation::kLeakyRelu:
      return at::leaky_relu_(values, epilogue.negative_slope);
    case Activation::kRelu:
      return at::relu_(values);
    case Activation::kGelu:
      return at::gelu(values);
  }
  throw Error("internal error: an activation without code", Fault::kBug);
}

at::Tensor normalize(const at::Tensor& raw, const NormLayer& norm) {
  if (norm.kind == NormKind::kNone) return raw;
  const std::optional<at::Tensor> none;
  return at::instance_norm(raw, norm.scale ? std::optional(*norm.scale) : none,
                           norm.shift ? std::optional(*norm.shift) : none, none, none, true, 0.1, norm.epsilon,
                           at::globalContext().userEnabledCuDNN());
}

// The convolution's result is nobody else's and no backward needs it once a norm has read it, so that the activation
// may work in place; without a norm it may too, as a convolution's backward does not read its output.
at::Tensor apply(const at::Tensor& raw, const Epilogue& epilogue) {
  at::Tensor values = activate_in_place(normalize(raw, epilogue.norm), epilogue);
  if (epilogue.dropout.rate > 0) {
    const at::Tensor mask = dropout_mask(epilogue.dropout, values.size(0), values.size(1));
    values = values * mask.to(values.device(), values.scalar_type());
  }
  return values;
}

std::optional<at::Tensor> bias_that_counts(const ConvLayer& layer, const Epilogue& epilogue) {
  if (epilogue.norm.kind == NormKind::kInstance || !layer.bias.defined()) return std::nullopt;
  return layer.bias;
}

}  // namespace

struct Feature::State {
  at::Tensor values;  // undefined while `first` and `second` stand for a concatenation
  std::optional<Feature> first, second;
};

Feature Feature::plain(const at::Tensor& values) {
  return Feature(std::make_shared<State>(State{values, {}, {}}));
}

Feature Feature::concat(const Feature& first, const Feature& second) {
  return Feature(std::make_shared<State>(State{at::Tensor(), first, second}));
}

const at::Tensor& Feature::materialize() const {
  if (!state_->values.defined()) {
    state_->values = at::cat({state_->first->materialize(), state_->second->materialize()}, 1);
    state_->first.reset();
    state_->second.reset();
  }
  return state_->values;
}

Feature conv(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue) {
  const at::Tensor values = input.materialize().to(layer.weight.scalar_type());
  const at::Tensor raw = at::conv3d(values, layer.weight, bias_that_counts(layer, epilogue),
                                    sizes(layer.geometry.stride), sizes(layer.geometry.padding()));
  return Feature::plain(apply(raw, epilogue));
}

Feature conv_transpose(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue) {
  const at::Tensor values = input.materialize().to(layer.weight.scalar_type());
  const at::Tensor raw =
      at::conv_transpose3d(values, layer.weight, bias_that_counts(layer, epilogue), sizes(layer.geometry.stride));
  return Feature::plain(apply(raw, epilogue));
}

at::Tensor dropout_mask(const Dropout& dropout, int64_t samples, int64_t channels) {
  at::Tensor mask = at::empty({samples, channels, 1, 1, 1}, at::kFloat);
  const float kept = static_cast<float>(1 / (1 - dropout.rate));
  float* value = mask.data_ptr<float>();
  for (int64_t n = 0; n < samples; ++n) {
    Random random(dropout.seed, static_cast<uint64_t>(dropout.first_sample + n),
                  kDropoutStream + static_cast<uint32_t>(dropout.layer));
    for (int64_t c = 0; c < channels; ++c) *value++ = random.chance(dropout.rate) ? 0.0f : kept;
  }
  return mask;
}

}  // namespace vox::ops
