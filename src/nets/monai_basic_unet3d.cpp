// MONAI's BasicUNet: five levels of two convolutions, max pooling down, transposed convolutions up, the encoder's half
// of a concatenation first. Sizes that pooling does not halve are padded on the way up by repeating the last plane.
#include <torch/torch.h>

#include <array>

#include "base/error.h"
#include "nets/monai_network.h"
#include "nets/registry.h"

namespace vox {
namespace {

using ops::Feature;

constexpr size_t kBasicLevels = 5;

// Widths of the five levels, and of the full resolution on the way up: the first filter unless a sixth is given. One
// number widens as MONAI's own do; lists too short go on with their last.
std::array<int64_t, 6> features_of(const std::vector<int64_t>& filters) {
  if (filters.empty()) return {32, 32, 64, 128, 256, 32};
  if (filters.size() == 1) {
    const int64_t f = filters[0];
    return {f, f, 2 * f, 4 * f, 8 * f, f};
  }
  VOX_CHECK(filters.size() <= 6, "model.filters has ", filters.size(),
            " entries; monai_basic_unet3d has five levels, and a sixth number for the full resolution on the way up");
  std::array<int64_t, 6> features{};
  for (size_t i = 0; i < kBasicLevels; ++i) features[i] = filters[std::min(i, filters.size() - 1)];
  features[kBasicLevels] = filters.size() == 6 ? filters[5] : filters[0];
  return features;
}

class MonaiBasicUNet3d : public MonaiNetwork {
 public:
  MonaiBasicUNet3d(const ModelOptions& options, uint64_t seed);

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override { return {16, 16, 16}; }
  void require_divisible(const Extent3& patch) const override;

 private:
  struct TwoConvs {
    Block first, second;
    ParameterRange range;
  };
  struct UpStage {
    int64_t in = 1, skip = 1, out = 1;
    bool halves = true;
  };

  struct UpCat {
    Upsampling up;
    TwoConvs convs;
  };
  TwoConvs add_two(const std::string& name, int64_t in, int64_t out);
  UpCat add_upcat(const std::string& name, const UpStage& stage);
  Feature run_two(const TwoConvs& convs, const Feature& input, const ForwardContext& context) const;
  Feature joined(const UpCat& upcat, const Feature& below, const Feature& skip) const;

  std::array<TwoConvs, kBasicLevels> down_;
  std::array<UpCat, kBasicLevels - 1> up_;  // by the level that they lead to
  Conv head_;
};

MonaiBasicUNet3d::MonaiBasicUNet3d(const ModelOptions& options, uint64_t seed)
    : MonaiNetwork(options, seed, norm_spec(options, {}),
                   activation_spec(options, {.kind = ops::Activation::kLeakyRelu, .slope = 0.1})) {
  VOX_CHECK(options.strides.empty() && options.kernels.empty(),
            "model.strides and model.kernels: monai_basic_unet3d halves every axis and has kernels of 3; leave them "
            "out, or take dynunet or unet");
  const std::array<int64_t, 6> f = features_of(options.filters);
  down_[0] = add_two("conv_0", options.in_channels, f[0]);
  for (size_t i = 1; i < kBasicLevels; ++i) down_[i] = add_two(concat("down_", i, ".convs"), f[i - 1], f[i]);
  for (size_t i = kBasicLevels - 1; i > 1; --i)
    up_[i - 1] = add_upcat(concat("upcat_", i), {.in = f[i], .skip = f[i - 1], .out = f[i - 1]});
  up_[0] = add_upcat("upcat_1", {.in = f[1], .skip = f[0], .out = f[5], .halves = false});
  head_ = add_conv("final_conv", {.in = f[5], .out = options.out_channels, .geometry = {{1, 1, 1}}, .head = true});
}

MonaiBasicUNet3d::TwoConvs MonaiBasicUNet3d::add_two(const std::string& name, int64_t in, int64_t out) {
  TwoConvs convs;
  convs.range.first = mark();
  convs.first = add_convolution(name + ".conv_0", {.in = in, .out = out});
  convs.second = add_convolution(name + ".conv_1", {.in = out, .out = out});
  convs.range.last = mark();
  return convs;
}

MonaiBasicUNet3d::UpCat MonaiBasicUNet3d::add_upcat(const std::string& name, const UpStage& stage) {
  const int first = mark();
  const int64_t up_channels = stage.halves ? stage.in / 2 : stage.in;
  VOX_CHECK(up_channels > 0, "model.filters: ", name, " halves ", stage.in, " channels; take two at least");
  UpCat upcat;
  upcat.up = add_upsampling(name + ".upsample", {.in = stage.in, .out = up_channels});
  upcat.convs = add_two(name + ".convs", stage.skip + up_channels, stage.out);
  upcat.convs.range.first = first;
  return upcat;
}

// Pooling halves four times and drops what is left over, which is padded again: only too few voxels do not fit.
void MonaiBasicUNet3d::require_divisible(const Extent3& patch) const {
  const Extent3 least = divisor();
  VOX_CHECK(max(patch, least) == patch, "a patch of ", patch, " does not fit the network: its sizes must be ", least,
            " or more; the nearest is ", max(patch, least));
}

Feature MonaiBasicUNet3d::run_two(const TwoConvs& convs, const Feature& input, const ForwardContext& context) const {
  return run(convs.second, run(convs.first, input, context), context);
}

// What came up is held by the concatenation alone: once both are one tensor, its memory is free.
Feature MonaiBasicUNet3d::joined(const UpCat& upcat, const Feature& below, const Feature& skip) const {
  Feature up = go_up(upcat.up, below);
  Extent3 missing;
  for (int a = 0; a < 3; ++a) missing[a] = skip.materialize().size(a + 2) - up.materialize().size(a + 2);
  if (missing != Extent3{0, 0, 0}) up = ops::pad(up, {0, 0, 0}, missing, ops::PadWith::kEdge);
  return Feature::concat(skip, up);
}

std::vector<at::Tensor> MonaiBasicUNet3d::forward(const at::Tensor& image, const ForwardContext& context) {
  std::vector<Feature> skips{enter(image)};
  require_divisible({image.size(2), image.size(3), image.size(4)});
  for (size_t i = 0; i < kBasicLevels; ++i) {
    const auto stage = [this, &convs = down_[i], i, context](const std::vector<Feature>& in) {
      return run_two(convs, i == 0 ? in[0] : ops::max_pool(in[0], {}), context);
    };
    skips.push_back(run_stage(stage, {skips.back()}, down_[i].range, context));
  }
  Feature feature = skips.back();
  for (size_t i = kBasicLevels - 1; i-- > 0;) {
    const auto stage = [this, &upcat = up_[i], context](const std::vector<Feature>& in) {
      return run_two(upcat.convs, joined(upcat, in[0], in[1]), context);
    };
    feature = run_stage(stage, {feature, skips[i + 1]}, up_[i].convs.range, context);
  }
  return {run(head_, feature).materialize()};
}

}  // namespace

NetworkEntry monai_basic_unet3d_entry() {
  return {"monai_basic_unet3d", "MONAI's BasicUNet: instance norm, leaky ReLU 0.1, max pooling; takes odd sizes",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<MonaiBasicUNet3d>(options, seed);
          }};
}

}  // namespace vox
