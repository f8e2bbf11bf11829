#include "nets/nnunet_network.h"

#include <torch/torch.h>

#include "base/error.h"

namespace vox {

using ops::Feature;

NnunetNetwork::NnunetNetwork(const ModelOptions& options, uint64_t seed, const StageDefaults& defaults)
    : LayerNetwork(options, seed, WeightInit::kKaiming),
      plan_(plan_stages(options, defaults)),
      norm_(norm_spec(options, {})),
      activation_(activation_spec(options, {})) {
  VOX_CHECK(options.upsample != "pixelshuffle", "model.upsample: ", options.architecture,
            " has no pixel shuffling; use deconv, trilinear or nearest");
}

Block NnunetNetwork::add_block(const std::string& name, const BlockSpec& spec) {
  Block block;
  if (spec.drops) block.dropout = {.rate = options_.dropout, .before_norm = true};
  block.layer = next_layer();
  const bool cancelled = norm_.kind == ops::NormKind::kInstance && block.dropout.rate == 0;
  const Bias bias = !spec.biased || !options_.conv_bias ? Bias::kNone : cancelled ? Bias::kCancelled : Bias::kPlain;
  block.conv = add_conv(name + ".conv", {.in = spec.in, .out = spec.out, .geometry = spec.geometry, .bias = bias});
  block.norm = add_norm(name + ".norm", spec.out, norm_);
  if (spec.activates) block.act = add_activation(name + ".nonlin", activation_);
  return block;
}

void NnunetNetwork::add_decoder() {
  const std::vector<int64_t> convs = decoder_convs(options_, plan_);
  for (size_t level = plan_.size() - 1; level > 0; --level) add_decoder_stage(level, convs[level - 1]);
}

// From `level` up to the one above it.
void NnunetNetwork::add_decoder_stage(size_t level, int64_t convs) {
  const size_t index = decoder_.size();
  const int64_t filters = plan_[level - 1].filters;
  DecoderStage stage;
  stage.range.first = mark();
  stage.up = add_up(concat("decoder.transpconvs.", index), plan_[level].filters, filters, plan_[level].stride);
  for (int64_t c = 0; c < convs; ++c) {
    stage.convs.push_back(add_block(
        concat("decoder.stages.", index, ".convs.", c),
        {.in = c == 0 ? 2 * filters : filters, .out = filters, .geometry = {plan_[level - 1].kernel, {1, 1, 1}}}));
  }
  stage.range.last = mark();
  stage.head = add_head(concat("decoder.seg_layers.", index), filters);
  decoder_.push_back(std::move(stage));
}

// Back to the resolution of the image where the first stage has left it.
Conv NnunetNetwork::add_head(const std::string& name, int64_t in) {
  const Extent3 entry = plan_.front().stride;
  return add_conv(name, {.in = in,
                         .out = options_.out_channels,
                         .geometry = {entry, entry},
                         .transposed = entry.voxels() > 1,
                         .head = true});
}

Conv NnunetNetwork::add_up(const std::string& name, int64_t in, int64_t out, const Extent3& stride) {
  ConvSpec spec{.in = in, .out = out, .geometry = {{1, 1, 1}}, .bias = options_.conv_bias ? Bias::kPlain : Bias::kNone};
  if (options_.upsample == "deconv") {
    spec.geometry = {stride, stride};
    spec.transposed = true;
  }
  return add_conv(name, spec);
}

Feature NnunetNetwork::run_blocks(Feature input, const std::vector<Block>& blocks,
                                  const ForwardContext& context) const {
  for (const Block& block : blocks) input = run(block, input, context);
  return input;
}

Feature NnunetNetwork::run_up(const DecoderStage& stage, const Feature& below, const Extent3& factor) const {
  const Feature up = run(stage.up, below);  // an interpolated map is narrowed before it grows: the two commute
  if (stage.up.transposed) return up;
  return ops::upsample(up, factor,
                       options_.upsample == "nearest" ? ops::Interpolation::kNearest : ops::Interpolation::kLinear);
}

std::vector<at::Tensor> NnunetNetwork::forward(const at::Tensor& image, const ForwardContext& context) {
  const Feature entered = enter(image);
  require_divisible({image.size(2), image.size(3), image.size(4)});
  const std::vector<Feature> skips = encode(entered, context);
  Feature feature = skips.back();
  std::vector<at::Tensor> logits;
  for (size_t s = 0; s < decoder_.size(); ++s) {
    const size_t level = plan_.size() - 1 - s;
    const auto up = [this, &stage = decoder_[s], level, context](const std::vector<Feature>& in) {
      return run_blocks(Feature::concat(run_up(stage, in[0], plan_[level].stride), in[1]), stage.convs, context);
    };
    feature = run_stage(up, {feature, skips[level - 1]}, decoder_[s].range, context);
    if (level == 1 || wants_all_heads(context))
      logits.insert(logits.begin(), run(decoder_[s].head, feature).materialize());
  }
  return logits;
}

}  // namespace vox
