#include "nets/layers.h"

#include <torch/torch.h>

#include <cmath>

#include "base/error.h"
#include "base/span.h"
#include "nets/initialize.h"
#include "ops/checkpoint.h"
#include "ops/feature_size.h"
#include "ops/fused.h"

namespace vox {

using ops::Feature;
using ops::NormKind;

LayerNetwork::LayerNetwork(const ModelOptions& options, uint64_t seed, WeightInit init)
    : options_(options), seed_(seed), init_(init) {
  VOX_CHECK(options.in_channels > 0 && options.out_channels > 0, "model.in_channels is ", options.in_channels,
            " and model.out_channels ", options.out_channels, "; both must be positive here");
  if (options_.dropout == -1) options_.dropout = 0;  // what most architectures have; the others look at `options`
  VOX_CHECK(options_.dropout >= 0 && options_.dropout < 1, "model.dropout is ", options.dropout,
            "; expected 0 or more, and below 1");
  in_channels_ = options.in_channels;
}

void LayerNetwork::draw(int parameter, const Fans& fans, WeightInit init) {
  const at::NoGradGuard no_grad;
  Parameter& target = parameters_.all()[static_cast<size_t>(parameter)];
  const auto in = static_cast<double>(std::max<int64_t>(1, fans.in)), out = static_cast<double>(fans.out);
  const bool bias = target.spec.kind == ParameterKind::kBias;
  const DrawKey key{seed_, static_cast<uint64_t>(parameter)};
  switch (init) {
    case WeightInit::kKaiming:
      if (!bias) fill_normal(target.master, std::sqrt(2 / (1 + 0.01 * 0.01)) / std::sqrt(in), key);
      return;
    case WeightInit::kKaimingFanOut:
      if (!bias) fill_normal(target.master, std::sqrt(2 / out), key);
      return;
    case WeightInit::kKaimingUniform:
      if (!bias) fill_uniform(target.master, std::sqrt(6 / in), key);
      return;
    case WeightInit::kTorch:
      return fill_uniform(target.master, 1 / std::sqrt(in), key);
    case WeightInit::kGlorot:
      if (!bias) fill_uniform(target.master, std::sqrt(6 / (in + out)), key);
      return;
  }
}

Conv LayerNetwork::add_conv(const std::string& name, const ConvSpec& spec) {
  const ops::ConvGeometry& g = spec.geometry;
  VOX_CHECK(spec.in % g.groups == 0 && spec.out % g.groups == 0, name, ": ", spec.in, " and ", spec.out,
            " channels cannot be split into ", g.groups, " groups");
  const int64_t first = spec.transposed ? spec.in : spec.out,
                second = (spec.transposed ? spec.out : spec.in) / g.groups;
  Conv conv{.name = name, .geometry = g, .transposed = spec.transposed};
  conv.weight = parameters_.add({concat(name, ".weight"),
                                 ParameterKind::kConvWeight,
                                 {first, second, g.kernel.z, g.kernel.y, g.kernel.x},
                                 false,
                                 spec.head});
  // The fans that torch computes: from the second and the first axis of the weight, for transposed convolutions too.
  const Fans fans{second * g.kernel.voxels(), first * g.kernel.voxels()};
  const WeightInit init = spec.init.value_or(init_);
  const auto draw_one = [&](int index) {
    draw(index, fans, init);
    const at::NoGradGuard no_grad;
    if (spec.head) parameters_.all()[static_cast<size_t>(index)].master.div_(options_.output_scale);
  };
  draw_one(conv.weight);
  if (spec.bias == Bias::kNone) return conv;
  conv.bias = parameters_.add(
      {concat(name, ".bias"), ParameterKind::kBias, {spec.out}, spec.bias == Bias::kCancelled, spec.head});
  draw_one(conv.bias);
  return conv;
}

int LayerNetwork::add_parameter(const ParameterSpec& spec, double value) {
  const int index = parameters_.add(spec);
  Parameter& parameter = parameters_.all()[static_cast<size_t>(index)];
  const at::NoGradGuard no_grad;
  parameter.master.fill_(value);
  if (!parameter.value.is_same(parameter.master)) parameter.value.copy_(parameter.master);
  return index;
}

Norm LayerNetwork::add_norm(const std::string& name, int64_t channels, const NormSpec& spec) {
  if (!first_norm_) first_norm_ = spec.kind;
  Norm norm{.spec = spec};
  if (spec.kind == NormKind::kNone) return norm;
  VOX_CHECK(spec.kind != NormKind::kGroup || channels % spec.groups == 0, name, ": ", channels,
            " channels cannot be normalised in ", spec.groups, " groups; choose model.norm_groups that divides them");
  if (spec.affine) {
    norm.scale = add_parameter({concat(name, ".weight"), ParameterKind::kNormScale, {channels}, false, false}, 1);
    norm.shift = add_parameter({concat(name, ".bias"), ParameterKind::kNormShift, {channels}, false, false}, 0);
  }
  if (spec.kind == NormKind::kBatch) {
    norm.mean =
        add_parameter({concat(name, ".running_mean"), ParameterKind::kRunningMean, {channels}, false, false}, 0);
    norm.variance =
        add_parameter({concat(name, ".running_var"), ParameterKind::kRunningVariance, {channels}, false, false}, 1);
    if (spec.counts_batches)
      add_parameter({concat(name, ".num_batches_tracked"), ParameterKind::kBatchCount, {}, false, false}, 0);
  }
  return norm;
}

Act LayerNetwork::add_activation(const std::string& name, const ActivationSpec& spec) {
  if (!first_activation_) first_activation_ = spec;
  Act act{.spec = spec};
  if (spec.kind == ops::Activation::kPrelu)
    act.slope = add_parameter({concat(name, ".weight"), ParameterKind::kSlope, {1}, false, false}, spec.slope);
  return act;
}

std::string LayerNetwork::norm() const {
  if (!first_norm_) return "";
  switch (*first_norm_) {
    case NormKind::kNone:
      return "none";
    case NormKind::kInstance:
      return "instance";
    case NormKind::kBatch:
      return "batch";
    case NormKind::kGroup:
      return "group";
  }
  return "";
}

std::string LayerNetwork::activation() const {
  using ops::Activation;
  switch (first_activation_ ? first_activation_->kind : Activation::kNone) {
    case Activation::kNone:
      return "";
    case Activation::kLeakyRelu:
      return concat("leaky_relu with slope ", first_activation_->slope);
    case Activation::kRelu:
      return "relu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kPrelu:
      return "prelu";
    case Activation::kElu:
      return "elu";
    case Activation::kSilu:
      return "silu";
  }
  return "";
}

ops::Epilogue LayerNetwork::epilogue(const Norm& norm, const Act& act, const ForwardContext& context) const {
  const auto at_index = [&](int index) { return index < 0 ? nullptr : &parameters_[index]; };
  ops::Epilogue result;
  result.norm = {.kind = norm.spec.kind,
                 .scale = at_index(norm.scale),
                 .shift = at_index(norm.shift),
                 .epsilon = norm.spec.epsilon,
                 .groups = norm.spec.groups,
                 .running_mean = at_index(norm.mean),
                 .running_variance = at_index(norm.variance),
                 .momentum = norm.spec.momentum,
                 .training = context.training};
  result.activation = {.kind = act.spec.kind, .negative_slope = act.spec.slope, .slope = at_index(act.slope)};
  return result;
}

ops::Epilogue LayerNetwork::epilogue(const Block& block, const ForwardContext& context) const {
  ops::Epilogue result = epilogue(block.norm, block.act, context);
  if (context.training && block.dropout.rate > 0) {
    result.dropout = {.rate = block.dropout.rate,
                      .seed = context.seed,
                      .first_sample = context.first_sample,
                      .layer = block.layer,
                      .elements = block.dropout.elements,
                      .before_norm = block.dropout.before_norm};
  }
  return result;
}

Feature LayerNetwork::run(const Conv& conv, const Feature& input, const ops::Epilogue& epilogue) const {
  static const at::Tensor none;
  const ops::ConvLayer layer{parameters_[conv.weight], conv.bias < 0 ? none : parameters_[conv.bias], conv.geometry,
                             &conv.name};
  return conv.transposed ? ops::conv_transpose(input, layer, epilogue) : ops::conv(input, layer, epilogue);
}

Feature LayerNetwork::run(const Block& block, const Feature& input, const ForwardContext& context,
                          const Feature* residual) const {
  ops::Epilogue after = epilogue(block, context);
  after.residual = residual;
  return run(block.conv, input, after);
}

// A stage as a profile tells it: by the size of what it makes, on the way down or, with a skip, up.
Feature LayerNetwork::run_stage(const StageFunction& stage, const std::vector<Feature>& inputs,
                                const ParameterRange& range, const ForwardContext& context) const {
  if (!recording()) return run_or_checkpoint(stage, inputs, range, context);
  const auto begin = Clock::now();
  const Feature output = run_or_checkpoint(stage, inputs, range, context);
  const char* side = inputs.size() > 1 ? "decoder " : "encoder ";
  record_span(span_name(concat("forward.", side, ops::extent_of(output))), begin, Clock::now());
  return output;
}

Feature LayerNetwork::run_or_checkpoint(const StageFunction& stage, const std::vector<Feature>& inputs,
                                        const ParameterRange& range, const ForwardContext& context) const {
  if (!options_.use_checkpoint || !context.training) return stage(inputs);
  if (inputs.front().materialize().is_meta()) {
    ops::Trace* const trace = ops::Trace::current();
    const ops::Trace::Kept before = trace ? trace->kept() : ops::Trace::Kept{};
    const Feature output = stage(inputs);
    if (trace) trace->fold_segment(before, output.materialize().numel());
    return output;
  }
  std::vector<at::Tensor> tensors, leaves;
  for (const Feature& input : inputs) tensors.push_back(input.materialize());
  for (int i = range.first; i < range.last; ++i) {
    if (parameters_[i].requires_grad()) leaves.push_back(parameters_[i]);
  }
  const ops::Segment segment = [stage](const std::vector<at::Tensor>& values) {
    std::vector<Feature> features;
    for (const at::Tensor& value : values) features.push_back(Feature::plain(value));
    return std::vector<at::Tensor>{stage(features).materialize()};
  };
  return Feature::plain(ops::checkpoint(segment, tensors, leaves)[0]);
}

Feature LayerNetwork::enter(const at::Tensor& image) const {
  VOX_CHECK(image.dim() == 5 && image.size(1) == options_.in_channels, "the network takes [N, ", options_.in_channels,
            ", Z, Y, X] but the image is ", image.sizes());
  if (image.is_meta()) return Feature::plain(image);
  const at::ScalarType type = parameters_.compute_type();
  const at::MemoryFormat format = parameters_.memory_format();
  if constexpr (cuda::kCompiledIn) {
    const bool last = format == at::MemoryFormat::ChannelsLast3d;
    if (const auto values = last ? ops::fused::interleaved(image, type) : std::nullopt)
      return Feature::converted(*values, image);
  }
  return Feature::converted(image.to(type).contiguous(format), image);
}

NormSpec norm_spec(const ModelOptions& options, const NormSpec& own) {
  NormSpec spec = own;
  if (options.norm == "none") spec.kind = NormKind::kNone;
  if (options.norm == "instance") spec.kind = NormKind::kInstance;
  if (options.norm == "batch") spec.kind = NormKind::kBatch;
  if (options.norm == "group") spec.kind = NormKind::kGroup;
  spec.groups = options.norm_groups;
  return spec;
}

ActivationSpec activation_spec(const ModelOptions& options, const ActivationSpec& own) {
  using ops::Activation;
  constexpr double kPreluStart = 0.25, kLeakySlope = 0.01;
  if (options.activation == "auto") return own;
  if (options.activation == "relu") return {Activation::kRelu, 0};
  if (options.activation == "prelu") return {Activation::kPrelu, kPreluStart};
  if (options.activation == "elu") return {Activation::kElu, 0};
  if (options.activation == "gelu") return {Activation::kGelu, 0};
  if (options.activation == "silu") return {Activation::kSilu, 0};
  return own.kind == Activation::kLeakyRelu ? own : ActivationSpec{Activation::kLeakyRelu, kLeakySlope};
}

}  // namespace vox
