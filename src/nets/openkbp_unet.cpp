// The U-Net of the OpenKBP challenge (Babier et al. 2021): convolutions of 4x4x4 and stride 2 down and up, batch norm
// as Keras has it, and an average over 3x3x3 voxels before the last ReLU, so that a dose is smooth and never negative.
// The original is a Keras model, whose layers have no names that would mean anything. Here they are, with f the first
// width and "eb", "db" the batch norms of "e" and "d":
//   e.0 .. e.5  convolutions of the encoder, to f, 2f, 4f, 8f, 8f, 8f channels; the last has no norm
//   d.0 .. d.4  transposed convolutions of the decoder, to 8f, 8f, 4f, 2f, f channels; each but the first takes the
//               channels of the level below, then the encoder's
//   o           the transposed convolution of the output, the only one with a bias
#include <torch/torch.h>

#include "base/error.h"
#include "nets/layers.h"
#include "nets/registry.h"

namespace vox {
namespace {

using ops::Activation;
using ops::Feature;

constexpr size_t kOpenKbpDepth = 6;  // halvings of the resolution
constexpr double kKerasDropout = 0.2;
const ops::ConvGeometry kHalving{.kernel = {4, 4, 4}, .stride = {2, 2, 2}, .padding = Extent3{1, 1, 1}};

class OpenKbpUNet : public LayerNetwork {
 public:
  OpenKbpUNet(const ModelOptions& options, uint64_t seed);

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override { return {1 << kOpenKbpDepth, 1 << kOpenKbpDepth, 1 << kOpenKbpDepth}; }

 private:
  struct Step {
    Block block;
    ParameterRange range;
  };
  void add_down(size_t index, int64_t in, int64_t out);
  void add_up(size_t index, int64_t in, int64_t out);
  Feature run_step(const Step& step, const std::vector<Feature>& inputs, const ForwardContext& context) const;

  NormSpec norm_;
  double dropout_;
  std::vector<Step> down_, up_;  // in the order in which they run
  Conv output_;
};

int64_t openkbp_width(const ModelOptions& options) {
  constexpr int64_t kRecommended = 64;  // "recommend increasing to 64", says the original, whose own value is 1
  if (options.filters.empty()) return kRecommended;
  VOX_CHECK(options.filters.size() == 1 && options.filters[0] > 0,
            "openkbp_unet takes one number as model.filters, the width of its first stage, such as 64");
  return options.filters[0];
}

OpenKbpUNet::OpenKbpUNet(const ModelOptions& options, uint64_t seed)
    : LayerNetwork(options, seed, WeightInit::kGlorot),
      norm_(norm_spec(options, {.kind = ops::NormKind::kBatch,
                                .epsilon = 1e-3,
                                .momentum = 0.01,  // Keras calls it 0.99
                                .counts_batches = false})),
      dropout_(options.dropout < 0 ? kKerasDropout : options_.dropout) {
  const int64_t f = openkbp_width(options);
  const std::vector<int64_t> widths{f, 2 * f, 4 * f, 8 * f, 8 * f, 8 * f};
  for (size_t i = 0; i < kOpenKbpDepth; ++i) add_down(i, i == 0 ? options.in_channels : widths[i - 1], widths[i]);
  for (size_t i = 0; i + 1 < kOpenKbpDepth; ++i) {
    const int64_t below = widths[kOpenKbpDepth - 1 - i];
    add_up(i, i == 0 ? below : 2 * below, widths[kOpenKbpDepth - 2 - i]);
  }
  output_ =
      add_conv("o", {.in = 2 * f, .out = options.out_channels, .geometry = kHalving, .transposed = true, .head = true});
}

void OpenKbpUNet::add_down(size_t index, int64_t in, int64_t out) {
  Step step{.block = {}, .range = {mark(), 0}};
  step.block.conv = add_conv(concat("e.", index), {.in = in, .out = out, .geometry = kHalving, .bias = Bias::kNone});
  if (index + 1 < kOpenKbpDepth) step.block.norm = add_norm(concat("eb.", index), out, norm_);
  step.block.act.spec = {Activation::kLeakyRelu, 0.2};
  step.range.last = mark();
  down_.push_back(std::move(step));
}

void OpenKbpUNet::add_up(size_t index, int64_t in, int64_t out) {
  Step step{.block = {}, .range = {mark(), 0}};
  step.block.conv = add_conv(concat("d.", index),
                             {.in = in, .out = out, .geometry = kHalving, .bias = Bias::kNone, .transposed = true});
  step.block.norm = add_norm(concat("db.", index), out, norm_);
  step.block.act.spec = {Activation::kRelu, 0};
  step.block.layer = next_layer();
  if (index % 2 == 1) step.block.dropout.rate = dropout_;
  step.range.last = mark();
  up_.push_back(std::move(step));
}

Feature OpenKbpUNet::run_step(const Step& step, const std::vector<Feature>& inputs,
                              const ForwardContext& context) const {
  const auto block = [this, &step, context](const std::vector<Feature>& in) {
    return run(step.block, in.size() == 1 ? in[0] : Feature::concat(in[0], in[1]), context);
  };
  return run_stage(block, inputs, step.range, context);
}

std::vector<at::Tensor> OpenKbpUNet::forward(const at::Tensor& image, const ForwardContext& context) {
  require_divisible({image.size(2), image.size(3), image.size(4)});
  std::vector<Feature> skips;
  Feature feature = enter(image);
  for (const Step& step : down_) {
    feature = run_step(step, {feature}, context);
    skips.push_back(feature);
  }
  skips.pop_back();
  for (const Step& step : up_) {
    std::vector<Feature> inputs{feature};
    if (&step != &up_.front()) {
      inputs.push_back(skips.back());
      skips.pop_back();
    }
    feature = run_step(step, inputs, context);
  }
  const Feature raw = run(output_, Feature::concat(feature, skips.back()));
  const Feature smooth = ops::average_pool(raw, {.kernel = {3, 3, 3}, .stride = {1, 1, 1}, .padding = {1, 1, 1}});
  ops::Epilogue relu;
  relu.activation.kind = Activation::kRelu;
  return {ops::apply(smooth, relu).materialize()};
}

}  // namespace

NetworkEntry openkbp_unet_entry() {
  return {"openkbp_unet", "The OpenKBP challenge's U-Net for dose: batch norm, strided convolutions, smoothed output",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<OpenKbpUNet>(options, seed);
          }};
}

}  // namespace vox
