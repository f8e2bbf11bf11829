// nnU-Net's U-Net with a residual encoder (ResidualEncoderUNet of dynamic-network-architectures): a stem, blocks as in
// ResNet-D (He et al. 2019), optionally with squeeze-and-excitation gates, and the plain decoder.
#include <torch/torch.h>

#include "base/error.h"
#include "nets/nnunet_network.h"
#include "nets/registry.h"

namespace vox {
namespace {

using ops::Feature;

class ResencUNet : public NnunetNetwork {
 public:
  ResencUNet(const ModelOptions& options, uint64_t seed);

 private:
  struct Gates {
    std::optional<Conv> narrow, widen;  // of the channel gate
    std::optional<Conv> spatial;
    bool any() const { return narrow || spatial; }
  };
  struct ResidualBlock {
    Block first, second;
    Act last;  // after the sum
    Gates gates;
    bool pools = false;         // the skip, where the block has a stride
    std::optional<Block> skip;  // where the block changes the number of channels
  };
  struct EncoderStage {
    std::vector<ResidualBlock> blocks;
    ParameterRange range;
  };

  ResidualBlock add_residual(const std::string& name, int64_t in, int64_t out, const ops::ConvGeometry& geometry);
  Gates add_gates(const std::string& name, int64_t channels);
  Feature run_residual(const ResidualBlock& block, const Feature& input, const ForwardContext& context) const;
  Feature run_gates(const Gates& gates, const Feature& input) const;
  std::vector<Feature> encode(const Feature& image, const ForwardContext& context) const override;

  Block stem_;
  ParameterRange stem_range_;
  std::vector<EncoderStage> encoder_;
};

const StageDefaults kResencDefaults{.filters = {32, 64, 128, 256, 320, 320}};

// Blocks of nnU-Net's planner; deeper networks go on as it does.
ModelOptions with_own_depths(ModelOptions options) {
  constexpr int64_t kBlocks[] = {1, 3, 4, 6};
  if (options.decoder_convs.empty()) options.decoder_convs = {1};
  if (!options.convs_per_stage.empty()) return options;
  const size_t stages = plan_stages(options, kResencDefaults).size();
  for (size_t s = 0; s < stages; ++s) options.convs_per_stage.push_back(kBlocks[std::min<size_t>(s, 3)]);
  return options;
}

ResencUNet::ResencUNet(const ModelOptions& options, uint64_t seed)
    : NnunetNetwork(with_own_depths(options), seed, kResencDefaults) {
  stem_range_.first = mark();
  stem_ = add_block(
      "encoder.stem.convs.0",
      {.in = options.in_channels, .out = plan_.front().filters, .geometry = {plan_.front().kernel, {1, 1, 1}}});
  stem_range_.last = mark();
  int64_t channels = plan_.front().filters;
  for (size_t s = 0; s < plan_.size(); ++s) {
    EncoderStage stage{.blocks = {}, .range = {mark(), 0}};
    for (int64_t b = 0; b < plan_[s].convs; ++b) {
      const ops::ConvGeometry geometry{plan_[s].kernel, b == 0 ? plan_[s].stride : Extent3{1, 1, 1}};
      stage.blocks.push_back(
          add_residual(concat("encoder.stages.", s, ".blocks.", b), channels, plan_[s].filters, geometry));
      channels = plan_[s].filters;
    }
    stage.range.last = mark();
    encoder_.push_back(std::move(stage));
  }
  add_decoder();
}

// Only the first convolution drops, the skip never has a bias, and the last norm before the sum starts at 0, so that a
// fresh block is its skip.
ResencUNet::ResidualBlock ResencUNet::add_residual(const std::string& name, int64_t in, int64_t out,
                                                   const ops::ConvGeometry& geometry) {
  ResidualBlock block;
  block.first = add_block(name + ".conv1", {.in = in, .out = out, .geometry = geometry});
  block.second =
      add_block(name + ".conv2",
                {.in = out, .out = out, .geometry = {geometry.kernel, {1, 1, 1}}, .drops = false, .activates = false});
  if (block.second.norm.scale >= 0) {
    const at::NoGradGuard no_grad;
    parameters_.all()[static_cast<size_t>(block.second.norm.scale)].master.zero_();
  }
  block.last = add_activation(name + ".nonlin2", activation_);
  block.gates = add_gates(name + ".squeeze_excitation", out);
  block.pools = geometry.stride != Extent3{1, 1, 1};
  if (in != out) {
    block.skip =
        add_block(concat(name, ".skip.", block.pools ? 1 : 0),
                  {.in = in, .out = out, .geometry = {{1, 1, 1}}, .drops = false, .biased = false, .activates = false});
  }
  return block;
}

ResencUNet::Gates ResencUNet::add_gates(const std::string& name, int64_t channels) {
  constexpr int64_t kReduction = 16, kMultiple = 8;
  const std::string& kind = options_.squeeze_excitation;
  Gates gates;
  if (kind == "channel" || kind == "both") {
    // The nearest multiple of eight to a sixteenth of the channels, and eight at least.
    const int64_t hidden =
        std::max(kMultiple, (channels + kReduction * kMultiple / 2) / (kReduction * kMultiple) * kMultiple);
    gates.narrow = add_conv(name + ".fc1", {.in = channels, .out = hidden, .geometry = {{1, 1, 1}}});
    gates.widen = add_conv(name + ".fc2", {.in = hidden, .out = channels, .geometry = {{1, 1, 1}}});
  }
  if (kind == "spatial" || kind == "both")
    gates.spatial = add_conv(name + ".spatial", {.in = channels, .out = 1, .geometry = {{1, 1, 1}}});
  return gates;
}

// The channel gate is the original's, which averages over z and y and keeps x. Spatial gates, and the sum of both, are
// those of Roy et al. 2018; the original has none.
Feature ResencUNet::run_gates(const Gates& gates, const Feature& input) const {
  std::optional<Feature> by_channel, by_place;
  if (gates.narrow) {
    ops::Epilogue relu;
    relu.activation.kind = ops::Activation::kRelu;
    const Feature hidden = run(*gates.narrow, ops::mean(input, {true, true, false}), relu);
    by_channel = ops::gate(input, run(*gates.widen, hidden));
  }
  if (gates.spatial) by_place = ops::gate(input, run(*gates.spatial, input));
  if (by_channel && by_place) return ops::add(*by_channel, *by_place);
  return by_channel ? *by_channel : *by_place;
}

Feature ResencUNet::run_residual(const ResidualBlock& block, const Feature& input,
                                 const ForwardContext& context) const {
  const Extent3 stride = block.first.conv.geometry.stride;
  Feature residual = block.pools ? ops::average_pool(input, {.kernel = stride, .stride = stride}) : input;
  if (block.skip) residual = run(*block.skip, residual, context);
  const Feature inner = run(block.first, input, context);
  if (!block.gates.any()) {
    Block second = block.second;
    second.act = block.last;
    return run(second, inner, context, &residual);
  }
  ops::Epilogue after = epilogue(Norm{}, block.last, context);
  after.residual = &residual;
  return ops::apply(run_gates(block.gates, run(block.second, inner, context)), after);
}

std::vector<Feature> ResencUNet::encode(const Feature& image, const ForwardContext& context) const {
  const auto stem = [this, context](const std::vector<Feature>& in) { return run(stem_, in[0], context); };
  Feature feature = run_stage(stem, {image}, stem_range_, context);
  std::vector<Feature> skips;
  for (const EncoderStage& stage : encoder_) {
    const auto blocks = [this, &stage, context](const std::vector<Feature>& in) {
      Feature inner = in[0];
      for (const ResidualBlock& block : stage.blocks) inner = run_residual(block, inner, context);
      return inner;
    };
    feature = run_stage(blocks, {feature}, stage.range, context);
    skips.push_back(feature);
  }
  return skips;
}

}  // namespace

NetworkEntry resenc_unet_entry() {
  return {"resenc_unet", "nnU-Net's U-Net with a residual encoder, optionally with squeeze-and-excitation",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<ResencUNet>(options, seed);
          },
          /*deep_supervision=*/true};
}

}  // namespace vox
