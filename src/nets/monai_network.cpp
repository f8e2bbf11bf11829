#include "nets/monai_network.h"

#include <torch/torch.h>

#include <cmath>

#include "base/error.h"
#include "nets/initialize.h"

namespace vox {

using ops::Feature;

MonaiNetwork::MonaiNetwork(const ModelOptions& options, uint64_t seed, const NormSpec& norm,
                           const ActivationSpec& activation)
    : LayerNetwork(options, seed, WeightInit::kTorch), norm_(norm), activation_(activation), seed_(seed) {}

Block MonaiNetwork::add_convolution(const std::string& name, const ConvolutionSpec& spec) {
  const bool cancelled = norm_.kind == ops::NormKind::kInstance && !spec.alone;
  Block block;
  block.layer = next_layer();
  block.conv = add_conv(name + ".conv", {.in = spec.in,
                                         .out = spec.out,
                                         .geometry = spec.geometry,
                                         .bias = cancelled && options_.conv_bias ? Bias::kCancelled : plain_bias(),
                                         .transposed = spec.transposed,
                                         .head = spec.alone});
  if (spec.alone) return block;
  block.norm = add_norm(name + ".adn.N", spec.out, norm_);
  block.act = add_activation(name + ".adn.A", activation_);
  block.dropout = {.rate = options_.dropout, .elements = true};
  return block;
}

// A block of voxels starts as one value (Aitken et al. 2017): the channels that make it up have the same weights.
void MonaiNetwork::fill_for_shuffling(const Conv& conv) {
  const at::NoGradGuard no_grad;
  at::Tensor& weight = parameters_.all()[static_cast<size_t>(conv.weight)].master;
  const int64_t block = conv.geometry.kernel.voxels(), fan_in = weight.size(1) * block;
  std::vector<int64_t> shape = weight.sizes().vec();
  shape[0] /= 8;
  at::Tensor one_of_each = at::empty(shape, at::kFloat);
  fill_normal(one_of_each, std::sqrt(2.0 / static_cast<double>(fan_in)), {seed_, static_cast<uint64_t>(conv.weight)});
  weight.copy_(one_of_each.repeat_interleave(8, 0));
}

MonaiNetwork::Upsampling MonaiNetwork::add_upsampling(const std::string& name, const UpsamplingSpec& spec) {
  Upsampling up{.conv = {}, .factor = spec.factor};
  if (options_.upsample == "deconv") {
    up.conv = add_conv(name + ".deconv", {.in = spec.in,
                                          .out = spec.out,
                                          .geometry = {spec.factor, spec.factor},
                                          .bias = spec.bias,
                                          .transposed = true});
  } else if (options_.upsample == "pixelshuffle") {
    VOX_CHECK(spec.factor == (Extent3{2, 2, 2}), "model.upsample: pixelshuffle goes up by 2 along every axis, not by ",
              spec.factor);
    up.conv = add_conv(name + ".pixelshuffle.conv_block", {.in = spec.in, .out = 8 * spec.out, .bias = spec.bias});
    fill_for_shuffling(*up.conv);
  } else if (spec.in != spec.out) {
    up.conv = add_conv(name + ".preconv", {.in = spec.in, .out = spec.out, .geometry = {{1, 1, 1}}, .bias = spec.bias});
  }
  return up;
}

Feature MonaiNetwork::go_up(const Upsampling& up, const Feature& input) const {
  const Feature values = up.conv ? run(*up.conv, input) : input;
  if (options_.upsample == "deconv") return values;
  if (options_.upsample == "pixelshuffle") {
    const Feature padded = ops::pad(ops::pixel_shuffle(values, 2), {1, 1, 1}, {0, 0, 0}, ops::PadWith::kZeros);
    return ops::average_pool(padded, {.kernel = {2, 2, 2}, .stride = {1, 1, 1}});
  }
  return ops::upsample(
      values, up.factor,
      options_.upsample == "nearest" ? ops::Interpolation::kNearest : ops::Interpolation::kLinearAlignCorners);
}

}  // namespace vox
