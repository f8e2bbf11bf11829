// nnU-Net's plain U-Net (Isensee et al. 2021; PlainConvUNet of dynamic-network-architectures): stacked convolution,
// instance norm and leaky ReLU, strided convolutions down, transposed convolutions up, the upsampled half of a
// concatenation first. Parameter names are the original's.
#include <torch/torch.h>

#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "nets/network.h"
#include "nets/registry.h"
#include "ops/checkpoint.h"
#include "ops/feature.h"

namespace vox {
namespace {

using ops::Feature;

constexpr double kNegativeSlope = 0.01;

struct ConvBlock {  // indices into the parameters
  int weight = -1, bias = -1, scale = -1, shift = -1;
  ops::ConvGeometry geometry;
  int layer = 0;  // its number, for dropout
  int64_t in = 0, out = 0;
};

struct DecoderStage {
  ConvBlock up, head;
  std::vector<ConvBlock> convs;
};

struct StagePlan {
  int64_t filters = 0, convs = 2;
  Extent3 stride{1, 1, 1}, kernel{3, 3, 3};
};

// One number is the width of the first stage: doubled from stage to stage up to nnU-Net's largest.
std::vector<int64_t> filters_of(const ModelOptions& options) {
  constexpr size_t kStages = 4;
  constexpr int64_t kWidest = 320;
  std::vector<int64_t> filters = options.filters;
  if (filters.size() != 1) return filters;
  const size_t count = options.strides.empty() ? kStages : options.strides.size();
  while (filters.size() < count) filters.push_back(std::max(filters[0], std::min(kWidest, 2 * filters.back())));
  return filters;
}

std::vector<StagePlan> plan_stages(const ModelOptions& options) {
  const std::vector<int64_t> filters = filters_of(options);
  const size_t count = filters.size();
  VOX_CHECK(count >= 2, "model.filters has ", count, " entries; a U-Net needs two stages at least");
  const auto fits = [&](const char* key, size_t given) {
    VOX_CHECK(given == 0 || given == count, "model.", key, " has ", given, " entries but model.filters has ", count,
              "; give one per stage, or none");
  };
  fits("strides", options.strides.size());
  fits("kernels", options.kernels.size());
  if (options.convs_per_stage.size() != 1) fits("convs_per_stage", options.convs_per_stage.size());
  std::vector<StagePlan> stages(count);
  for (size_t s = 0; s < count; ++s) {
    StagePlan& stage = stages[s];
    stage.filters = filters[s];
    if (s > 0) stage.stride = {2, 2, 2};
    if (!options.strides.empty()) stage.stride = options.strides[s];
    if (!options.kernels.empty()) stage.kernel = options.kernels[s];
    const auto& convs = options.convs_per_stage;
    if (!convs.empty()) stage.convs = convs[convs.size() == 1 ? 0 : s];
    VOX_CHECK(stage.filters > 0 && stage.convs > 0, "model: stage ", s, " has ", stage.filters, " filters and ",
              stage.convs, " convolutions; both must be positive");
    for (int axis = 0; axis < 3; ++axis) {
      VOX_CHECK(stage.stride[axis] > 0 && stage.kernel[axis] > 0 && stage.kernel[axis] % 2 == 1, "model: stage ", s,
                " has stride ", stage.stride, " and kernel ", stage.kernel, "; strides are positive, kernels odd");
    }
  }
  return stages;
}

class UNet : public Network {
 public:
  UNet(const ModelOptions& options, uint64_t seed);

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override;
  double gmac(const Extent3& patch) const override;

 private:
  ConvBlock add_block(const std::string& name, int64_t in, int64_t out, const ops::ConvGeometry& geometry);
  ConvBlock add_plain(const std::string& name, const std::vector<int64_t>& weight_shape, int64_t out);
  void add_decoder_stage(size_t level, size_t index);
  void initialize(uint64_t seed);

  ops::ConvLayer layer_of(const ConvBlock& block) const;
  ops::Epilogue epilogue_of(const ConvBlock& block, const ForwardContext& context) const;
  Feature run_convs(Feature input, const std::vector<ConvBlock>& convs, const ForwardContext& context) const;
  Feature run_encoder_stage(size_t level, const Feature& input, const ForwardContext& context) const;
  Feature run_decoder_stage(const DecoderStage& stage, const Feature& below, const Feature& skip,
                            const ForwardContext& context) const;
  std::vector<at::Tensor> tensors_of(const std::vector<ConvBlock>& convs) const;

  ModelOptions options_;
  ops::NormKind norm_;
  ops::Activation activation_;
  std::vector<StagePlan> plan_;
  std::vector<std::vector<ConvBlock>> encoder_;
  std::vector<DecoderStage> decoder_;  // the lowest first
  int layers_ = 0;
};

ops::NormKind parse_norm(const std::string& name) {
  VOX_CHECK(name == "instance" || name == "none", "model.norm: unet has instance or none, not \"", name, "\"");
  return name == "instance" ? ops::NormKind::kInstance : ops::NormKind::kNone;
}

ops::Activation parse_activation(const std::string& name) {
  if (name == "leaky_relu") return ops::Activation::kLeakyRelu;
  if (name == "relu") return ops::Activation::kRelu;
  if (name == "gelu") return ops::Activation::kGelu;
  throw Error(concat("model.activation: unet has leaky_relu, relu or gelu, not \"", name, "\""));
}

UNet::UNet(const ModelOptions& options, uint64_t seed)
    : options_(options),
      norm_(parse_norm(options.norm)),
      activation_(parse_activation(options.activation)),
      plan_(plan_stages(options)) {
  VOX_CHECK(options.in_channels > 0 && options.out_channels > 0, "model.in_channels is ", options.in_channels,
            " and model.out_channels ", options.out_channels, "; both must be positive here");
  VOX_CHECK(options.dropout >= 0 && options.dropout < 1, "model.dropout is ", options.dropout,
            "; expected 0 or more, and below 1");
  int64_t channels = options.in_channels;
  for (size_t s = 0; s < plan_.size(); ++s) {
    std::vector<ConvBlock> convs;
    for (int64_t c = 0; c < plan_[s].convs; ++c) {
      const ops::ConvGeometry geometry{plan_[s].kernel, c == 0 ? plan_[s].stride : Extent3{1, 1, 1}};
      convs.push_back(add_block(concat("encoder.stages.", s, ".0.convs.", c), channels, plan_[s].filters, geometry));
      channels = plan_[s].filters;
    }
    encoder_.push_back(convs);
  }
  for (size_t level = plan_.size() - 1; level > 0; --level) add_decoder_stage(level, plan_.size() - 1 - level);
  initialize(seed);
}

ConvBlock UNet::add_plain(const std::string& name, const std::vector<int64_t>& weight_shape, int64_t out) {
  const bool head = name.find("seg_layers") != std::string::npos;
  ConvBlock block;
  block.weight = parameters_.add({concat(name, ".weight"), ParameterKind::kConvWeight, weight_shape, false, head});
  block.bias = parameters_.add({concat(name, ".bias"), ParameterKind::kBias, {out}, false, head});
  return block;
}

ConvBlock UNet::add_block(const std::string& name, int64_t in, int64_t out, const ops::ConvGeometry& geometry) {
  ConvBlock block;
  const Extent3& k = geometry.kernel;
  const bool normed = norm_ != ops::NormKind::kNone;
  block.weight = parameters_.add(
      {concat(name, ".conv.weight"), ParameterKind::kConvWeight, {out, in, k.z, k.y, k.x}, false, false});
  block.bias = parameters_.add({concat(name, ".conv.bias"), ParameterKind::kBias, {out}, normed, false});
  if (normed) {
    block.scale = parameters_.add({concat(name, ".norm.weight"), ParameterKind::kNormScale, {out}, false, false});
    block.shift = parameters_.add({concat(name, ".norm.bias"), ParameterKind::kNormShift, {out}, false, false});
  }
  block.geometry = geometry;
  block.layer = layers_++;
  block.in = in;
  block.out = out;
  return block;
}

// From `level` up to the one above it.
void UNet::add_decoder_stage(size_t level, size_t index) {
  const int64_t below = plan_[level].filters, filters = plan_[level - 1].filters;
  const Extent3& s = plan_[level].stride;
  DecoderStage stage;
  stage.up = add_plain(concat("decoder.transpconvs.", index), {below, filters, s.z, s.y, s.x}, filters);
  stage.up.geometry = {s, s};
  stage.up.in = below;
  stage.up.out = filters;
  for (int64_t c = 0; c < plan_[level - 1].convs; ++c) {
    stage.convs.push_back(add_block(concat("decoder.stages.", index, ".convs.", c), c == 0 ? 2 * filters : filters,
                                    filters, {plan_[level - 1].kernel, {1, 1, 1}}));
  }
  stage.head =
      add_plain(concat("decoder.seg_layers.", index), {options_.out_channels, filters, 1, 1, 1}, options_.out_channels);
  stage.head.geometry = {{1, 1, 1}, {1, 1, 1}};
  stage.head.in = filters;
  stage.head.out = options_.out_channels;
  decoder_.push_back(std::move(stage));
}

// He et al. 2015 for the leaky ReLU, with the fan that torch computes: the second axis of the weight, for transposed
// convolutions too.
void fill_kaiming(at::Tensor& weight, uint64_t seed, uint64_t index) {
  const int64_t fan = weight.numel() / weight.size(0);
  const double deviation = std::sqrt(2.0 / (1 + kNegativeSlope * kNegativeSlope)) / std::sqrt(static_cast<double>(fan));
  const int64_t count = weight.numel();
  float* const values = weight.data_ptr<float>();
  at::parallel_for(0, (count + 3) / 4, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t four = begin; four < end; ++four) {
      const Philox4 bits =
          philox(seed, index, (static_cast<uint64_t>(kWeightStream) << 32) | static_cast<uint64_t>(four));
      for (int64_t i = 4 * four; i < std::min(count, 4 * four + 4); ++i) {
        values[i] = static_cast<float>(deviation * normal_from_bits(bits.v[i & 3]));
      }
    }
  });
}

void UNet::initialize(uint64_t seed) {
  const at::NoGradGuard no_grad;
  uint64_t index = 0;
  for (Parameter& parameter : parameters_.all()) {
    if (parameter.spec.kind == ParameterKind::kConvWeight) fill_kaiming(parameter.master, seed, index);
    if (parameter.spec.kind == ParameterKind::kNormScale) parameter.master.fill_(1);
    ++index;
  }
}

ops::ConvLayer UNet::layer_of(const ConvBlock& block) const {
  return {parameters_[block.weight], parameters_[block.bias], block.geometry};
}

ops::Epilogue UNet::epilogue_of(const ConvBlock& block, const ForwardContext& context) const {
  ops::Epilogue epilogue;
  if (norm_ != ops::NormKind::kNone) {
    epilogue.norm = {norm_, &parameters_[block.scale], &parameters_[block.shift]};
  }
  epilogue.activation = activation_;
  epilogue.negative_slope = kNegativeSlope;
  if (context.training) epilogue.dropout = {options_.dropout, context.seed, context.first_sample, block.layer};
  return epilogue;
}

Feature UNet::run_convs(Feature input, const std::vector<ConvBlock>& convs, const ForwardContext& context) const {
  for (const ConvBlock& block : convs) input = conv(input, layer_of(block), epilogue_of(block, context));
  return input;
}

std::vector<at::Tensor> UNet::tensors_of(const std::vector<ConvBlock>& convs) const {
  std::vector<at::Tensor> tensors;
  for (const ConvBlock& block : convs) {
    for (const int index : {block.weight, block.bias, block.scale, block.shift}) {
      if (index >= 0) tensors.push_back(parameters_[index]);
    }
  }
  return tensors;
}

Feature UNet::run_encoder_stage(size_t level, const Feature& input, const ForwardContext& context) const {
  const std::vector<ConvBlock>& convs = encoder_[level];
  if (!options_.use_checkpoint || !context.training) return run_convs(input, convs, context);
  const ops::Segment segment = [&convs, this, context](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{run_convs(Feature::plain(inputs[0]), convs, context).materialize()};
  };
  return Feature::plain(ops::checkpoint(segment, {input.materialize()}, tensors_of(convs))[0]);
}

Feature UNet::run_decoder_stage(const DecoderStage& stage, const Feature& below, const Feature& skip,
                                const ForwardContext& context) const {
  const auto plainly = [&stage, this, context](const Feature& low, const Feature& high) {
    return run_convs(Feature::concat(conv_transpose(low, layer_of(stage.up)), high), stage.convs, context);
  };
  if (!options_.use_checkpoint || !context.training) return plainly(below, skip);
  const ops::Segment segment = [plainly](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{plainly(Feature::plain(inputs[0]), Feature::plain(inputs[1])).materialize()};
  };
  std::vector<ConvBlock> blocks = stage.convs;
  blocks.push_back(stage.up);
  return Feature::plain(ops::checkpoint(segment, {below.materialize(), skip.materialize()}, tensors_of(blocks))[0]);
}

std::vector<at::Tensor> UNet::forward(const at::Tensor& image, const ForwardContext& context) {
  VOX_CHECK(image.dim() == 5 && image.size(1) == options_.in_channels, "the network takes [N, ", options_.in_channels,
            ", Z, Y, X] but the image is ", image.sizes());
  require_divisible({image.size(2), image.size(3), image.size(4)});
  std::vector<Feature> skips;
  Feature feature = Feature::plain(image.to(parameters_.compute_type()).contiguous(parameters_.memory_format()));
  for (size_t level = 0; level < encoder_.size(); ++level) {
    feature = run_encoder_stage(level, feature, context);
    skips.push_back(feature);
  }
  std::vector<at::Tensor> logits;
  for (size_t s = 0; s < decoder_.size(); ++s) {
    feature = run_decoder_stage(decoder_[s], feature, skips[skips.size() - 2 - s], context);
    const bool last = s + 1 == decoder_.size();
    if (last || (options_.deep_supervision && context.training)) {
      logits.insert(logits.begin(), conv(feature, layer_of(decoder_[s].head)).materialize());
    }
  }
  return logits;
}

Extent3 UNet::divisor() const {
  Extent3 product{1, 1, 1};
  for (const StagePlan& stage : plan_) {
    for (int axis = 0; axis < 3; ++axis) product[axis] *= stage.stride[axis];
  }
  return product;
}

double UNet::gmac(const Extent3& patch) const {
  const auto work = [](const ConvBlock& block, int64_t voxels) {
    return static_cast<double>(block.in * block.out * block.geometry.kernel.voxels()) * static_cast<double>(voxels);
  };
  double macs = 0;
  std::vector<int64_t> voxels;
  Extent3 size = patch;
  for (size_t s = 0; s < plan_.size(); ++s) {
    for (int axis = 0; axis < 3; ++axis) size[axis] /= plan_[s].stride[axis];
    voxels.push_back(size.voxels());
    for (const ConvBlock& block : encoder_[s]) macs += work(block, voxels[s]);
  }
  for (size_t s = 0; s < decoder_.size(); ++s) {
    const size_t level = plan_.size() - 2 - s;
    macs += work(decoder_[s].up, voxels[level + 1]);
    for (const ConvBlock& block : decoder_[s].convs) macs += work(block, voxels[level]);
    if (level == 0 || options_.deep_supervision) macs += work(decoder_[s].head, voxels[level]);
  }
  return macs * 1e-9;
}

}  // namespace

NetworkEntry unet_entry() {
  return {"unet", "nnU-Net's plain U-Net: instance norm, leaky ReLU, transposed-convolution upsampling",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<UNet>(options, seed);
          }};
}

}  // namespace vox
