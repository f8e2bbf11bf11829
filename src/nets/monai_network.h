// What MONAI's UNet and BasicUNet share: a convolution with norm, dropout and activation in this order, and the ways to
// go up. Parameter names are MONAI's.
#pragma once

#include <optional>

#include "nets/layers.h"

namespace vox {

class MonaiNetwork : public LayerNetwork {
 protected:
  MonaiNetwork(const ModelOptions& options, uint64_t seed, const NormSpec& norm, const ActivationSpec& activation);

  struct ConvolutionSpec {
    int64_t in = 1, out = 1;
    ops::ConvGeometry geometry{};
    bool transposed = false;
    bool alone = false;  // the last of the network: nothing follows
  };
  Block add_convolution(const std::string& name, const ConvolutionSpec& spec);
  Bias plain_bias() const { return options_.conv_bias ? Bias::kPlain : Bias::kNone; }

  struct Upsampling {
    std::optional<Conv> conv;  // none where the number of channels stays and voxels are interpolated
    Extent3 factor{2, 2, 2};
  };
  struct UpsamplingSpec {
    int64_t in = 1, out = 1;
    Extent3 factor{2, 2, 2};
    Bias bias = Bias::kPlain;
  };
  Upsampling add_upsampling(const std::string& name, const UpsamplingSpec& spec);
  ops::Feature go_up(const Upsampling& up, const ops::Feature& input) const;

  NormSpec norm_;
  ActivationSpec activation_;

 private:
  void fill_for_shuffling(const Conv& conv);

  uint64_t seed_;
};

}  // namespace vox
