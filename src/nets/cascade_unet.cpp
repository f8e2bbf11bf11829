// C3D (Liu et al. 2021), first in both streams of OpenKBP: two U-Nets in a row, the second of which reads the last
// features of the first beside the image. Convolution, instance norm and ReLU; strided convolutions down, trilinear
// interpolation and a convolution up. Parameter names are the original's.
// The first net's own output is a second one at full resolution, given in training: the original weighs it half.
#include <torch/torch.h>

#include "base/error.h"
#include "nets/layers.h"
#include "nets/registry.h"

namespace vox {
namespace {

using ops::Feature;

constexpr size_t kCascadeLevels = 5;

struct CascadeStage {
  std::vector<Block> blocks;  // of a decoder stage the first comes before the concatenation
  ParameterRange range;
};

struct CascadeNet {
  std::vector<CascadeStage> down;  // the finest first
  std::vector<CascadeStage> up;    // the coarsest first
};

struct CascadeWidths {
  std::vector<int64_t> first, second;  // of the two nets, finest first
};

CascadeWidths cascade_widths(const ModelOptions& options) {
  const std::vector<int64_t>& given = options.filters;
  VOX_CHECK(given.size() <= 1 || given.size() == 2 * kCascadeLevels, "model.filters has ", given.size(),
            " entries; cascade_unet takes ten, five of each net, or one, the first net's first width");
  CascadeWidths widths;
  for (size_t s = 0; s < kCascadeLevels; ++s) {
    const int64_t start = given.empty() ? 16 : given[0];
    widths.first.push_back(given.size() > 1 ? given[s] : start << s);
    widths.second.push_back(given.size() > 1 ? given[kCascadeLevels + s] : start << (s + 1));
  }
  return widths;
}

class CascadeUNet : public LayerNetwork {
 public:
  CascadeUNet(const ModelOptions& options, uint64_t seed);

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override { return {16, 16, 16}; }

 private:
  struct BlockSpec {
    int64_t in = 1, out = 1, stride = 1;
  };
  Block add_block(const std::string& conv, const std::string& norm, const BlockSpec& spec);
  Block add_single(const std::string& name, const BlockSpec& spec);
  CascadeNet add_net(const std::string& name, int64_t in, const std::vector<int64_t>& widths);
  Feature run_net(const CascadeNet& net, Feature feature, const ForwardContext& context) const;

  NormSpec norm_;
  ActivationSpec activation_;
  CascadeNet first_, second_;
  Conv first_head_, second_head_;
};

CascadeUNet::CascadeUNet(const ModelOptions& options, uint64_t seed)
    : LayerNetwork(options, seed, WeightInit::kKaimingUniform),
      norm_(norm_spec(options, {})),
      activation_(activation_spec(options, {ops::Activation::kRelu, 0})) {
  const CascadeWidths widths = cascade_widths(options);
  first_ = add_net("net_A", options.in_channels, widths.first);
  second_ = add_net("net_B", options.in_channels + widths.first[0], widths.second);
  const auto add_head = [&](const std::string& name, int64_t channels) {
    return add_conv(name, {.in = channels,
                           .out = options_.out_channels,
                           .geometry = {{1, 1, 1}},
                           .head = true,
                           .init = WeightInit::kTorch});
  };
  first_head_ = add_head("conv_out_A", widths.first[0]);
  second_head_ = add_head("conv_out_B", widths.second[0]);
}

Block CascadeUNet::add_block(const std::string& conv, const std::string& norm, const BlockSpec& spec) {
  const bool cancelled = norm_.kind == ops::NormKind::kInstance;
  Block block;
  block.conv = add_conv(conv, {.in = spec.in,
                               .out = spec.out,
                               .geometry = {{3, 3, 3}, {spec.stride, spec.stride, spec.stride}},
                               .bias = cancelled ? Bias::kCancelled : Bias::kPlain});
  block.norm = add_norm(norm, spec.out, norm_);
  block.act = add_activation(norm + ".act", activation_);
  return block;
}

Block CascadeUNet::add_single(const std::string& name, const BlockSpec& spec) {
  return add_block(name + ".single_conv.0", name + ".single_conv.1", spec);
}

CascadeNet CascadeUNet::add_net(const std::string& name, int64_t in, const std::vector<int64_t>& widths) {
  CascadeNet net;
  for (size_t s = 0; s < kCascadeLevels; ++s) {
    const std::string stage_name = concat(name, ".encoder.encoder_", s + 1);
    CascadeStage stage{.blocks = {}, .range = {mark(), 0}};
    stage.blocks.push_back(
        add_single(stage_name + ".0", {.in = s == 0 ? in : widths[s - 1], .out = widths[s], .stride = s == 0 ? 1 : 2}));
    stage.blocks.push_back(add_single(stage_name + ".1", {.in = widths[s], .out = widths[s]}));
    stage.range.last = mark();
    net.down.push_back(std::move(stage));
  }
  for (size_t s = kCascadeLevels - 1; s-- > 0;) {
    const std::string up = concat(name, ".decoder.upconv_", s + 1),
                      convs = concat(name, ".decoder.decoder_conv_", s + 1);
    CascadeStage stage{.blocks = {}, .range = {mark(), 0}};
    stage.blocks.push_back(add_block(up + ".conv.0", up + ".conv.1", {.in = widths[s + 1], .out = widths[s]}));
    stage.blocks.push_back(add_single(convs + ".0", {.in = 2 * widths[s], .out = widths[s]}));
    if (s > 0) stage.blocks.push_back(add_single(convs + ".1", {.in = widths[s], .out = widths[s]}));
    stage.range.last = mark();
    net.up.push_back(std::move(stage));
  }
  return net;
}

Feature CascadeUNet::run_net(const CascadeNet& net, Feature feature, const ForwardContext& context) const {
  std::vector<Feature> skips;
  for (const CascadeStage& stage : net.down) {
    const auto blocks = [this, &stage, context](const std::vector<Feature>& in) {
      return run(stage.blocks[1], run(stage.blocks[0], in[0], context), context);
    };
    feature = run_stage(blocks, {feature}, stage.range, context);
    skips.push_back(feature);
  }
  skips.pop_back();
  for (const CascadeStage& stage : net.up) {
    const auto blocks = [this, &stage, context](const std::vector<Feature>& in) {
      const Feature larger = ops::upsample(in[0], {2, 2, 2}, ops::Interpolation::kLinearAlignCorners);
      Feature result = Feature::concat(run(stage.blocks[0], larger, context), in[1]);
      for (size_t b = 1; b < stage.blocks.size(); ++b) result = run(stage.blocks[b], result, context);
      return result;
    };
    feature = run_stage(blocks, {feature, skips.back()}, stage.range, context);
    skips.pop_back();
  }
  return feature;
}

std::vector<at::Tensor> CascadeUNet::forward(const at::Tensor& image, const ForwardContext& context) {
  require_divisible({image.size(2), image.size(3), image.size(4)});
  const Feature entered = enter(image);
  const Feature guess = run_net(first_, entered, context);
  const Feature better = run_net(second_, Feature::concat(guess, entered), context);
  std::vector<at::Tensor> outputs{run(second_head_, better).materialize()};
  if (context.training || context.all_heads) outputs.push_back(run(first_head_, guess).materialize());
  return outputs;
}

}  // namespace

NetworkEntry cascade_unet_entry() {
  return {"cascade_unet", "C3D: two U-Nets in a row; the first one's output is trained too, as a second output",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<CascadeUNet>(options, seed);
          },
          /*deep_supervision=*/false, /*dropout=*/false};
}

}  // namespace vox
