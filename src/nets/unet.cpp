// nnU-Net's plain U-Net (Isensee et al. 2021; PlainConvUNet of dynamic-network-architectures): stacked convolution,
// instance norm and leaky ReLU, strided convolutions down, transposed convolutions up.
#include <torch/torch.h>

#include "base/error.h"
#include "nets/nnunet_network.h"
#include "nets/registry.h"

namespace vox {
namespace {

using ops::Feature;

class UNet : public NnunetNetwork {
 public:
  UNet(const ModelOptions& options, uint64_t seed);

 private:
  struct EncoderStage {
    std::vector<Block> convs;
    ParameterRange range;
  };

  std::vector<Feature> encode(const Feature& image, const ForwardContext& context) const override;

  std::vector<EncoderStage> encoder_;
};

UNet::UNet(const ModelOptions& options, uint64_t seed)
    : NnunetNetwork(options, seed, {.filters = {32, 64, 128, 256}, .convs = 2}) {
  int64_t channels = options.in_channels;
  for (size_t s = 0; s < plan_.size(); ++s) {
    EncoderStage stage{.convs = {}, .range = {mark(), 0}};
    for (int64_t c = 0; c < plan_[s].convs; ++c) {
      const ops::ConvGeometry geometry{plan_[s].kernel, c == 0 ? plan_[s].stride : Extent3{1, 1, 1}};
      stage.convs.push_back(add_block(concat("encoder.stages.", s, ".0.convs.", c),
                                      {.in = channels, .out = plan_[s].filters, .geometry = geometry}));
      channels = plan_[s].filters;
    }
    stage.range.last = mark();
    encoder_.push_back(std::move(stage));
  }
  add_decoder();
}

std::vector<Feature> UNet::encode(const Feature& image, const ForwardContext& context) const {
  std::vector<Feature> skips;
  for (const EncoderStage& stage : encoder_) {
    const auto convs = [this, &stage, context](const std::vector<Feature>& in) {
      return run_blocks(in[0], stage.convs, context);
    };
    skips.push_back(run_stage(convs, {skips.empty() ? image : skips.back()}, stage.range, context));
  }
  return skips;
}

}  // namespace

NetworkEntry unet_entry() {
  return {"unet", "nnU-Net's plain U-Net: instance norm, leaky ReLU, transposed-convolution upsampling",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<UNet>(options, seed);
          },
          /*deep_supervision=*/true};
}

}  // namespace vox
