#include "ops/feature.h"

#include <torch/torch.h>

#include <utility>

#include "base/error.h"
#include "kernels/cuda.h"
#include "ops/checkpoint.h"
#include "ops/dropout_masks.h"
#include "ops/feature_state.h"
#include "ops/fused.h"
#include "ops/layer_trace.h"
#include "ops/library_conv.h"

namespace vox::ops {
namespace {

std::array<int64_t, 3> sizes(const Extent3& extent) {
  return {extent.z, extent.y, extent.x};
}

std::optional<at::Tensor> optional(const at::Tensor* tensor) {
  return tensor ? std::optional(*tensor) : std::nullopt;
}

at::Tensor normalize(const at::Tensor& raw, const NormLayer& norm) {
  if constexpr (cuda::kCompiledIn) {
    const Epilogue alone{.norm = norm};
    if (fused::normalizes(raw, alone)) return fused::normalize({.values = raw}, alone).materialize();
  }
  const bool cudnn = at::globalContext().userEnabledCuDNN();
  switch (norm.kind) {
    case NormKind::kNone:
      return raw;
    case NormKind::kInstance:
      return at::instance_norm(raw, optional(norm.scale), optional(norm.shift), {}, {}, true, 0.1, norm.epsilon, cudnn);
    case NormKind::kGroup:
      // On the CPU torch's backward of a channels-last group norm crashes where its input, as an image, has no
      // gradient.
      return at::group_norm(raw.is_cpu() ? raw.contiguous() : raw, norm.groups, optional(norm.scale),
                            optional(norm.shift), norm.epsilon, cudnn);
    case NormKind::kBatch: {
      // The running variance divides by one less: a NaN that would show at the first validation only.
      VOX_CHECK(
          !norm.training || raw.numel() > raw.size(1),
          "a batch norm cannot learn from one value per channel, and the coarsest stage has no more of this patch ",
          "and batch; make data.patch_size or data.batch_size larger, or choose another model.norm");
      // A segment that runs a second time must not move the running statistics twice.
      const bool moves = !norm.training || !recomputing();
      return at::batch_norm(
          raw, optional(norm.scale), optional(norm.shift), moves ? optional(norm.running_mean) : std::nullopt,
          moves ? optional(norm.running_variance) : std::nullopt, norm.training, norm.momentum, norm.epsilon, cudnn);
    }
  }
  throw Error("internal error: a norm without code", Fault::kBug);
}

at::Tensor activate(const at::Tensor& values, const ActivationLayer& layer, bool in_place) {
  switch (layer.kind) {
    case Activation::kNone:
      return values;
    case Activation::kLeakyRelu:
      if (!in_place) return at::leaky_relu(values, layer.negative_slope);
      return at::leaky_relu_(const_cast<at::Tensor&>(values), layer.negative_slope);
    case Activation::kRelu:
      return in_place ? at::relu_(const_cast<at::Tensor&>(values)) : at::relu(values);
    case Activation::kGelu:
      return at::gelu(values);
    case Activation::kPrelu:
      return at::prelu(values, layer.slope->to(values.scalar_type()));
    case Activation::kElu:
      return at::elu(values);
    case Activation::kSilu:
      return at::silu(values);
  }
  throw Error("internal error: an activation without code", Fault::kBug);
}

at::Tensor drop(const at::Tensor& values, const Dropout& dropout) {
  if (dropout.rate <= 0) return values;
  return values * dropout_mask_on_device(dropout, values);
}

// `owned`: the values are nobody else's and no backward needs them (a convolution does not read its output, a norm
// only its input), so that the activation may work in place.
at::Tensor apply_to(at::Tensor values, const Epilogue& epilogue, bool owned) {
  const Dropout& dropout = epilogue.dropout;
  if (dropout.before_norm) values = drop(values, dropout);
  owned = owned || epilogue.norm.kind != NormKind::kNone;
  values = normalize(values, epilogue.norm);
  if (!dropout.before_norm) values = drop(values, dropout);
  if (epilogue.residual) {
    values = values + epilogue.residual->materialize();
    owned = true;
  }
  return activate(values, epilogue.activation, owned);
}

Feature finish(fused::RawOutput raw, const Epilogue& epilogue, bool owned) {
  if constexpr (cuda::kCompiledIn) {
    raw.values = fused::in_its_layout(raw.values);
    if (fused::normalizes(raw.values, epilogue)) {
      if (epilogue.dropout.rate > 0) raw = {.values = drop(raw.values, epilogue.dropout)};  // before the norm
      return fused::normalize(raw, epilogue);
    }
    if (raw.bias.defined()) raw.values = raw.values + raw.bias.reshape({1, -1, 1, 1, 1});
  }
  return Feature::plain(apply_to(raw.values, epilogue, owned));
}

at::Tensor folded_bias(const ConvLayer& layer, const Epilogue& epilogue) {
  if constexpr (cuda::kCompiledIn) {
    if (fused::folds_bias(layer, epilogue)) return layer.bias;
  }
  return {};
}

std::optional<at::Tensor> bias_that_counts(const ConvLayer& layer, const Epilogue& epilogue) {
  const bool cancelled = epilogue.norm.kind == NormKind::kInstance && !epilogue.dropout.before_norm;
  if (cancelled || !layer.bias.defined() || folded_bias(layer, epilogue).defined()) return std::nullopt;
  return layer.bias;
}

struct Operands {
  at::Tensor values, weight;
  std::optional<at::Tensor> bias;
};

// A convolution computes in its weight's type; on the CPU, half precision rounds what goes in and out and computes in
// float32. torch's own half-precision convolutions die on CPUs that advertise AMX without having it, take minutes for
// some shapes, and read memory nobody wrote in the weight gradient of small volumes (2.13: 32 to 16 channels at 2^3).
Operands operands(const at::Tensor& values, const ConvLayer& layer, const Epilogue& epilogue) {
  Operands in{values.to(layer.weight.scalar_type()), layer.weight, bias_that_counts(layer, epilogue)};
  if (!values.is_cpu()) return in;
  in.values = in.values.to(at::kFloat);
  in.weight = in.weight.to(at::kFloat);
  if (in.bias) in.bias = in.bias->to(at::kFloat);
  return in;
}

at::Tensor convolved(const Operands& in, const LibraryConv& how) {
  if constexpr (cuda::kCompiledIn) {
    if (in.values.is_cuda()) return library_convolution(in.values, in.weight, in.bias, how);
  }
  return at::convolution(in.values, in.weight, in.bias, how.stride, how.padding, {1, 1, 1}, how.transposed,
                         how.output_padding, how.groups);
}

// Tensor cores take channels by eight: an image of another count gets channels of zeros, and its kernel too.
void fill_channels(Operands& in, int64_t groups) {
  constexpr int64_t kTogether = 8;
  const int64_t missing = (kTogether - in.values.size(1) % kTogether) % kTogether;
  const bool image = !in.values.requires_grad() && in.values.is_cuda() && in.values.scalar_type() != at::kFloat;
  if (missing == 0 || groups != 1 || !image) return;
  const int64_t channels = in.values.size(1) + missing;
  in.values = with_channels_of_zeros(in.values, channels);
  in.weight = with_channels_of_zeros(in.weight, channels);
}

Extent3 extent_of(const at::Tensor& values) {
  return {values.size(2), values.size(3), values.size(4)};
}

Extent3 conv_size(const Extent3& in, const Extent3& kernel, const Extent3& stride, const Extent3& padding) {
  Extent3 out;
  for (int a = 0; a < 3; ++a) out[a] = (in[a] + 2 * padding[a] - kernel[a]) / stride[a] + 1;
  return out;
}

Feature pooled(const Feature& input, const PoolWindow& window,
               const std::function<at::Tensor(const at::Tensor&)>& compute) {
  record_reading(input, false);
  const at::Tensor& values = input.materialize();
  if (!values.is_meta()) return Feature::plain(compute(values));
  const Feature result =
      shape_alone(values, values.size(1), conv_size(extent_of(values), window.kernel, window.stride, window.padding));
  record_kept(result);
  constexpr int64_t kWithIndices = 1 + sizeof(int64_t) / 2;  // a max pool keeps the places of its maxima
  const int64_t numel = result.materialize().numel();
  record_kept_fused(kWithIndices * numel);
  record_moved(2 * (values.numel() + kWithIndices * numel));
  return result;
}

}  // namespace

at::Tensor with_channels_of_zeros(const at::Tensor& few, int64_t channels) {
  if (few.size(1) == channels) return few;
  const std::array<int64_t, 8> amount{0, 0, 0, 0, 0, 0, 0, channels - few.size(1)};
  return at::constant_pad_nd(few, amount).contiguous(at::MemoryFormat::ChannelsLast3d);
}

Feature Feature::from(State state) {
  return Feature(std::make_shared<State>(std::move(state)));
}

Feature Feature::plain(const at::Tensor& values) {
  return from({.values = values});
}

Feature Feature::converted(const at::Tensor& values, const at::Tensor& source) {
  return values.is_same(source) ? plain(values) : from({.values = values, .source = source});
}

Feature Feature::concat(const Feature& first, const Feature& second) {
  return from({.first = first, .second = second});
}

const at::Tensor& Feature::materialize() const {
  if constexpr (cuda::kCompiledIn) {
    if (!state_->values.defined() && state_->deferred) state_->values = fused::materialize(*state_->deferred);
  }
  if (!state_->values.defined()) {
    state_->values = at::cat({state_->first->materialize(), state_->second->materialize()}, 1);
    state_->first.reset();
    state_->second.reset();
    if (state_->values.is_meta()) record_kept(*this);
  }
  return state_->values;
}

Feature conv(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue) {
  if constexpr (cuda::kCompiledIn) {
    if (const auto logits = fused::head(input, layer, epilogue)) return Feature::plain(*logits);
    if (const auto raw = fused::convolve(input, layer, epilogue)) return finish(*raw, epilogue, true);
    if (const auto raw = fused::convolve_by_product(input, layer, epilogue)) return finish(*raw, epilogue, true);
    if (const auto raw = fused::convolve_folded(input, layer, epilogue)) return finish(*raw, epilogue, true);
  }
  const ConvGeometry& g = layer.geometry;
  const Extent3 padding = g.padding.value_or(Extent3{(g.kernel.z - 1) / 2, (g.kernel.y - 1) / 2, (g.kernel.x - 1) / 2});
  const Reading reading = record_reading(input, reads_raw(layer));
  const at::Tensor& values = input.materialize();
  if (values.is_meta()) {
    const Extent3 size = conv_size(extent_of(values), g.kernel, g.stride, padding);
    return record_conv(values, layer, epilogue, {layer.weight.size(0), size, size, reading});
  }
  Operands in = operands(values, layer, epilogue);
  fill_channels(in, g.groups);
  const at::Tensor raw = convolved(in, {.stride = sizes(g.stride), .padding = sizes(padding), .groups = g.groups});
  return finish({raw.to(layer.weight.scalar_type()), {}, folded_bias(layer, epilogue)}, epilogue, true);
}

Feature conv_transpose(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue) {
  if constexpr (cuda::kCompiledIn) {
    const bool bare = epilogue.norm.kind == NormKind::kNone;
    if (const auto raw = bare ? fused::upsample(input, layer) : std::nullopt)
      return finish({*raw, {}, {}}, epilogue, true);
    if (const auto raw = fused::transposed_by_product(input, layer, epilogue)) return finish(*raw, epilogue, true);
    if (const auto raw = fused::transposed_folded(input, layer, epilogue)) return finish(*raw, epilogue, true);
  }
  const ConvGeometry& g = layer.geometry;
  const Extent3 padding = g.padding.value_or(Extent3{0, 0, 0});
  const Extent3 twos{2, 2, 2};
  constexpr int64_t kNarrow = 64;  // products of a voxel (kernels/narrow_cuda.h)
  const bool own_kernel = g.kernel == twos || layer.weight.size(1) * g.kernel.voxels() <= kNarrow;
  const Reading reading = record_reading(input, own_kernel && g.stride == twos);
  const at::Tensor& values = input.materialize();
  if (values.is_meta()) {
    Extent3 size;
    for (int a = 0; a < 3; ++a)
      size[a] = (values.size(a + 2) - 1) * g.stride[a] - 2 * padding[a] + g.kernel[a] + g.output_padding[a];
    return record_conv(values, layer, epilogue, {layer.weight.size(1) * g.groups, size, extent_of(values), reading});
  }
  const Operands in = operands(values, layer, epilogue);
  const at::Tensor raw = convolved(in, {.stride = sizes(g.stride),
                                        .padding = sizes(padding),
                                        .output_padding = sizes(g.output_padding),
                                        .groups = g.groups,
                                        .transposed = true});
  return finish({raw.to(layer.weight.scalar_type()), {}, folded_bias(layer, epilogue)}, epilogue, true);
}

Feature apply(const Feature& input, const Epilogue& epilogue) {
  const at::Tensor& values = input.materialize();
  if (!values.is_meta()) return finish({values, {}, {}}, epilogue, false);
  record_kept(input, tensors_kept(epilogue) + (epilogue.activation.kind != Activation::kNone));
  record_reading(input, false);
  record_kept_fused(values.numel());
  record_moved((epilogue.norm.kind != NormKind::kNone ? 8 : 5) * values.numel());
  return input;
}

Feature add(const Feature& first, const Feature& second) {
  const at::Tensor sum = first.materialize() + second.materialize();
  if (!sum.is_meta()) return Feature::plain(sum);
  for (const Feature& part : {first, second}) record_passed_on(part);
  record_kept_fused(sum.numel());
  record_moved(3 * sum.numel());
  return Feature::from({.values = sum, .counted = true});
}

Feature mean(const Feature& input, const std::array<bool, 3>& over) {
  std::vector<int64_t> axes;
  for (int a = 0; a < 3; ++a) {
    if (over[static_cast<size_t>(a)]) axes.push_back(a + 2);
  }
  return Feature::plain(at::mean(input.materialize(), axes, true));
}

Feature gate(const Feature& input, const Feature& logits) {
  const at::Tensor values = input.materialize() * at::sigmoid(logits.materialize());
  const Feature result = Feature::plain(values);
  if (values.is_meta()) record_kept(result);
  record_moved(7 * values.numel());
  return result;
}

Feature max_pool(const Feature& input, const PoolWindow& window) {
  return pooled(input, window, [&](const at::Tensor& values) {
    return at::max_pool3d(values, sizes(window.kernel), sizes(window.stride), sizes(window.padding));
  });
}

Feature average_pool(const Feature& input, const PoolWindow& window) {
  return pooled(input, window, [&](const at::Tensor& values) {
    if constexpr (cuda::kCompiledIn) {
      if (const auto means = fused::average_pool(values, window)) return *means;
    }
    const bool widens = values.is_cpu() && values.scalar_type() != at::kFloat;  // torch has no half kernel on the CPU
    const at::Tensor read = widens ? values.to(at::kFloat) : values;
    return at::avg_pool3d(read, sizes(window.kernel), sizes(window.stride), sizes(window.padding), false, false)
        .to(values.scalar_type());
  });
}

Feature upsample(const Feature& input, const Extent3& factor, Interpolation how) {
  const at::Tensor& values = input.materialize();
  Extent3 size = extent_of(values);
  for (int a = 0; a < 3; ++a) size[a] *= factor[a];
  if (values.is_meta()) {
    const Feature larger = shape_alone(values, values.size(1), size);
    record_moved(2 * (values.numel() + larger.materialize().numel()));
    return larger;
  }
  if (how == Interpolation::kNearest) return Feature::plain(at::upsample_nearest3d(values, sizes(size)));
  return Feature::plain(at::upsample_trilinear3d(values, sizes(size), how == Interpolation::kLinearAlignCorners));
}

Feature pixel_shuffle(const Feature& input, int64_t factor) {
  const at::Tensor& values = input.materialize();
  const int64_t channels = values.size(1) / (factor * factor * factor);
  record_moved(4 * values.numel());
  const Extent3 size = extent_of(values);
  const at::Tensor blocks = values.reshape({values.size(0), channels, factor, factor, factor, size.z, size.y, size.x});
  return Feature::plain(blocks.permute({0, 1, 5, 2, 6, 3, 7, 4})
                            .reshape({values.size(0), channels, size.z * factor, size.y * factor, size.x * factor})
                            .contiguous(values.suggest_memory_format()));
}

Feature pad(const Feature& input, const Extent3& before, const Extent3& after, PadWith with) {
  const at::Tensor& values = input.materialize();
  if (values.is_meta()) {
    Extent3 size = extent_of(values);
    for (int a = 0; a < 3; ++a) size[a] += before[a] + after[a];
    record_moved(4 * values.numel());
    return shape_alone(values, values.size(1), size);
  }
  const std::array<int64_t, 6> amount{before.x, after.x, before.y, after.y, before.z, after.z};
  if (with == PadWith::kEdge) return Feature::plain(at::replication_pad3d(values, amount));
  return Feature::plain(at::constant_pad_nd(values, amount));
}

}  // namespace vox::ops
