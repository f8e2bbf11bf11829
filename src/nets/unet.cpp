// nnU-Net's plain U-Net (Isensee et al. 2021; PlainConvUNet of dynamic-network-architectures): stacked convolution,
// instance norm and leaky ReLU, strided convolutions down, transposed convolutions up, the upsampled half of a
// concatenation first. Parameter names are the original's.
#include <torch/torch.h>

#include "base/error.h"
#include "nets/layers.h"
#include "nets/registry.h"
#include "nets/stages.h"

namespace vox {
namespace {

using ops::Feature;

struct EncoderStage {
  std::vector<Block> convs;
  ParameterRange range;
};

struct DecoderStage {
  Conv up, head;
  std::vector<Block> convs;
  ParameterRange range;
};

class UNet : public LayerNetwork {
 public:
  UNet(const ModelOptions& options, uint64_t seed);

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override { return divisor_of(plan_); }

 private:
  Block add_block(const std::string& name, int64_t in, int64_t out, const ops::ConvGeometry& geometry);
  void add_decoder_stage(size_t level, size_t index);
  Conv add_up(const std::string& name, int64_t in, int64_t out, const Extent3& stride);
  Feature run_convs(Feature input, const std::vector<Block>& convs, const ForwardContext& context) const;
  Feature run_up(const DecoderStage& stage, const Feature& below, size_t level) const;

  std::vector<StagePlan> plan_;
  std::vector<int64_t> decoder_convs_;  // of each level, finest first
  NormSpec norm_;
  ActivationSpec activation_;
  std::vector<EncoderStage> encoder_;
  std::vector<DecoderStage> decoder_;  // the lowest first
};

UNet::UNet(const ModelOptions& options, uint64_t seed)
    : LayerNetwork(options, seed, WeightInit::kKaiming),
      plan_(plan_stages(options, {.filters = {32, 64, 128, 256}, .convs = 2})),
      decoder_convs_(decoder_convs(options, plan_)),
      norm_(norm_spec(options, {})),
      activation_(activation_spec(options, {})) {
  int64_t channels = options.in_channels;
  for (size_t s = 0; s < plan_.size(); ++s) {
    EncoderStage stage{.convs = {}, .range = {mark(), 0}};
    for (int64_t c = 0; c < plan_[s].convs; ++c) {
      const ops::ConvGeometry geometry{plan_[s].kernel, c == 0 ? plan_[s].stride : Extent3{1, 1, 1}};
      stage.convs.push_back(
          add_block(concat("encoder.stages.", s, ".0.convs.", c), channels, plan_[s].filters, geometry));
      channels = plan_[s].filters;
    }
    stage.range.last = mark();
    encoder_.push_back(std::move(stage));
  }
  for (size_t level = plan_.size() - 1; level > 0; --level) add_decoder_stage(level, plan_.size() - 1 - level);
}

Block UNet::add_block(const std::string& name, int64_t in, int64_t out, const ops::ConvGeometry& geometry) {
  const DropoutSpec dropout{.rate = options_.dropout, .before_norm = true};
  const bool cancelled = norm_.kind == ops::NormKind::kInstance && dropout.rate == 0;
  Block block{.dropout = dropout, .layer = next_layer()};
  block.conv =
      add_conv(name + ".conv",
               {.in = in, .out = out, .geometry = geometry, .bias = cancelled ? Bias::kCancelled : Bias::kPlain});
  block.norm = add_norm(name + ".norm", out, norm_);
  block.act = add_activation(name + ".nonlin", activation_);
  return block;
}

// From `level` up to the one above it.
void UNet::add_decoder_stage(size_t level, size_t index) {
  const int64_t filters = plan_[level - 1].filters;
  DecoderStage stage;
  stage.range.first = mark();
  stage.up = add_up(concat("decoder.transpconvs.", index), plan_[level].filters, filters, plan_[level].stride);
  for (int64_t c = 0; c < decoder_convs_[level - 1]; ++c) {
    stage.convs.push_back(add_block(concat("decoder.stages.", index, ".convs.", c), c == 0 ? 2 * filters : filters,
                                    filters, {plan_[level - 1].kernel, {1, 1, 1}}));
  }
  stage.range.last = mark();
  stage.head = add_conv(concat("decoder.seg_layers.", index),
                        {.in = filters, .out = options_.out_channels, .geometry = {{1, 1, 1}}, .head = true});
  decoder_.push_back(std::move(stage));
}

Conv UNet::add_up(const std::string& name, int64_t in, int64_t out, const Extent3& stride) {
  if (options_.upsample == "deconv")
    return add_conv(name, {.in = in, .out = out, .geometry = {stride, stride}, .transposed = true});
  return add_conv(name, {.in = in, .out = out, .geometry = {{1, 1, 1}}});
}

Feature UNet::run_convs(Feature input, const std::vector<Block>& convs, const ForwardContext& context) const {
  for (const Block& block : convs) input = run(block, input, context);
  return input;
}

Feature UNet::run_up(const DecoderStage& stage, const Feature& below, size_t level) const {
  const Feature up = run(stage.up, below);  // an interpolated map is narrowed before it grows: the two commute
  if (stage.up.transposed) return up;
  return ops::upsample(up, plan_[level].stride,
                       options_.upsample == "nearest" ? ops::Interpolation::kNearest : ops::Interpolation::kLinear);
}

std::vector<at::Tensor> UNet::forward(const at::Tensor& image, const ForwardContext& context) {
  require_divisible({image.size(2), image.size(3), image.size(4)});
  std::vector<Feature> skips;
  Feature feature = enter(image);
  for (const EncoderStage& stage : encoder_) {
    const auto convs = [this, &stage, context](const std::vector<Feature>& in) {
      return run_convs(in[0], stage.convs, context);
    };
    feature = run_stage(convs, {feature}, stage.range, context);
    skips.push_back(feature);
  }
  std::vector<at::Tensor> logits;
  for (size_t s = 0; s < decoder_.size(); ++s) {
    const size_t level = plan_.size() - 1 - s;
    const auto up = [this, &stage = decoder_[s], level, context](const std::vector<Feature>& in) {
      return run_convs(Feature::concat(run_up(stage, in[0], level), in[1]), stage.convs, context);
    };
    feature = run_stage(up, {feature, skips[level - 1]}, decoder_[s].range, context);
    if (level == 1 || wants_all_heads(context))
      logits.insert(logits.begin(), run(decoder_[s].head, feature).materialize());
  }
  return logits;
}

}  // namespace

NetworkEntry unet_entry() {
  return {"unet", "nnU-Net's plain U-Net: instance norm, leaky ReLU, transposed-convolution upsampling",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<UNet>(options, seed);
          }};
}

}  // namespace vox
