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
    values = values * dropout_mask(epilogue.dropout, values.sizes().vec()).to(values.device(), values.scalar_type());
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

at::Tensor dropout_mask(const Dropout& dropout, const std::vector<int64_t>& shape) {
  at::Tensor mask = at::empty(shape, at::kFloat);
  const int64_t per_sample = mask.numel() / std::max<int64_t>(shape[0], 1);
  VOX_CHECK(per_sample < (int64_t{1} << 32), "dropout on ", per_sample, " elements a sample; the limit is 2^32");
  const float kept = static_cast<float>(1 / (1 - dropout.rate));
  float* const data = mask.data_ptr<float>();
  for (int64_t n = 0; n < shape[0]; ++n) {
    const Random random(dropout.seed, static_cast<uint64_t>(dropout.first_sample + n),
                        kDropoutStream + static_cast<uint32_t>(dropout.layer));
    at::parallel_for(0, per_sample, 1 << 15, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float uniform = uniform_from_bits(random.bits_at(static_cast<uint32_t>(i)));
        data[n * per_sample + i] = static_cast<double>(uniform) < dropout.rate ? 0.0f : kept;
      }
    });
  }
  return mask;
}

}  // namespace vox::ops
