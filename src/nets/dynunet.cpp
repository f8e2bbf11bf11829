// MONAI's DynUNet: nnU-Net's plain U-Net in MONAI's words. No biases but those of the heads, residual blocks on the way
// down if asked for, the upsampled half of a concatenation first, and, unlike nnU-Net, a level of the decoder has the
// kernel of the stage below it. Dropout falls on single elements straight after every convolution, heads included.
#include <torch/torch.h>

#include "base/error.h"
#include "nets/layers.h"
#include "nets/registry.h"
#include "nets/stages.h"

namespace vox {
namespace {

using ops::Feature;

class DynUNet : public LayerNetwork {
 public:
  DynUNet(const ModelOptions& options, uint64_t seed);

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override { return divisor_of(plan_); }

 private:
  struct ConvBlock {
    Block first, second;
    bool sums = false;
    std::optional<Block> residual;  // none: the input itself
    ParameterRange range;
  };
  struct ConvBlockSpec {
    int64_t in = 1, out = 1;
    Extent3 kernel{3, 3, 3}, stride{1, 1, 1};
    bool residual = false;
  };
  struct UpStage {
    Block up;
    ConvBlock convs;
    ParameterRange range;
  };

  void check_options() const;
  Block add_block(const std::string& conv, const ConvSpec& spec);
  ConvBlock add_convs(const std::string& name, const ConvBlockSpec& spec);
  UpStage add_up(size_t level);  // that it leads to
  Feature run_convs(const ConvBlock& block, const Feature& input, const ForwardContext& context) const;

  std::vector<StagePlan> plan_;
  NormSpec norm_;
  ActivationSpec activation_;
  std::vector<ConvBlock> down_;
  std::vector<UpStage> up_;   // the lowest first
  std::vector<Block> heads_;  // by level
};

// The original's: at stride 1 it keeps the size, at others it divides it.
Extent3 padding_of(const Extent3& kernel, const Extent3& stride) {
  Extent3 padding;
  for (int a = 0; a < 3; ++a) {
    VOX_CHECK(kernel[a] - stride[a] + 1 >= 0, "model: a kernel of ", kernel, " with stride ", stride,
              " leaves voxels out; dynunet takes strides of the kernel's size plus one at most");
    padding[a] = (kernel[a] - stride[a] + 1) / 2;
  }
  return padding;
}

std::string block_name(size_t stage, size_t stages) {
  if (stage == 0) return "input_block";
  return stage + 1 == stages ? "bottleneck" : concat("downsamples.", stage - 1);
}

DynUNet::DynUNet(const ModelOptions& options, uint64_t seed)
    : LayerNetwork(options, seed, WeightInit::kKaiming),
      plan_(plan_stages(options, {.filters = {32, 64, 128, 256, 320, 320}})),
      norm_(norm_spec(options, {})),
      activation_(activation_spec(options, {})) {
  check_options();
  for (size_t s = 0; s < plan_.size(); ++s) {
    down_.push_back(add_convs(block_name(s, plan_.size()), {.in = s == 0 ? options.in_channels : plan_[s - 1].filters,
                                                            .out = plan_[s].filters,
                                                            .kernel = plan_[s].kernel,
                                                            .stride = plan_[s].stride,
                                                            .residual = options.residual}));
  }
  for (size_t level = plan_.size() - 1; level-- > 0;) up_.push_back(add_up(level));
  const int64_t heads = options.deep_supervision ? 1 + options.deep_supervision_heads : 1;
  for (int64_t h = 0; h < heads; ++h) {
    heads_.push_back(
        add_block(h == 0 ? "output_block.conv.conv" : concat("deep_supervision_heads.", h - 1, ".conv.conv"),
                  {.in = plan_[static_cast<size_t>(h)].filters,
                   .out = options.out_channels,
                   .geometry = {{1, 1, 1}},
                   .bias = Bias::kPlain,
                   .head = true}));
  }
}

void DynUNet::check_options() const {
  require_full_resolution(plan_);
  const auto coarser = static_cast<int64_t>(plan_.size()) - 2;  // levels of the decoder below the full resolution
  VOX_CHECK(!options_.deep_supervision ||
                (options_.deep_supervision_heads >= 1 && options_.deep_supervision_heads <= coarser),
            "model.deep_supervision_heads is ", options_.deep_supervision_heads, " but a dynunet of ", plan_.size(),
            " stages has ", coarser, " coarser levels to predict at");
  VOX_CHECK(options_.upsample == "deconv", "model.upsample is ", options_.upsample,
            "; dynunet goes up by transposed convolutions alone: use deconv");
}

Block DynUNet::add_block(const std::string& conv, const ConvSpec& spec) {
  Block block;
  block.layer = next_layer();
  block.conv = add_conv(conv, spec);
  block.dropout = {.rate = options_.dropout, .elements = true, .before_norm = true};
  return block;
}

DynUNet::ConvBlock DynUNet::add_convs(const std::string& name, const ConvBlockSpec& spec) {
  const Extent3 ones{1, 1, 1};
  const Act act = add_activation(name + ".lrelu", activation_);  // one for both, as the original's
  const auto add = [&](int number, int64_t in, const Extent3& kernel, const Extent3& stride) {
    ops::ConvGeometry geometry{kernel, stride};
    geometry.padding = padding_of(kernel, stride);
    Block block = add_block(concat(name, ".conv", number, ".conv"),
                            {.in = in, .out = spec.out, .geometry = geometry, .bias = Bias::kNone});
    block.norm = add_norm(concat(name, ".norm", number), spec.out, norm_);
    return block;
  };
  ConvBlock block;
  block.range.first = mark() - (act.slope < 0 ? 0 : 1);
  block.first = add(1, spec.in, spec.kernel, spec.stride);
  block.second = add(2, spec.out, spec.kernel, ones);
  block.first.act = block.second.act = act;
  block.sums = spec.residual;
  if (spec.residual && (spec.in != spec.out || spec.stride != ones))
    block.residual = add(3, spec.in, ones, spec.stride);
  block.range.last = mark();
  return block;
}

DynUNet::UpStage DynUNet::add_up(size_t level) {
  const StagePlan& below = plan_[level + 1];
  const std::string name = concat("upsamples.", up_.size());
  const int64_t out = plan_[level].filters;
  UpStage stage;
  stage.range.first = mark();
  stage.up = add_block(name + ".transp_conv.conv", {.in = below.filters,
                                                    .out = out,
                                                    .geometry = {below.stride, below.stride},
                                                    .bias = options_.trans_bias ? Bias::kPlain : Bias::kNone,
                                                    .transposed = true});
  stage.convs = add_convs(name + ".conv_block", {.in = 2 * out, .out = out, .kernel = below.kernel});
  stage.range.last = mark();
  return stage;
}

Feature DynUNet::run_convs(const ConvBlock& block, const Feature& input, const ForwardContext& context) const {
  const Feature inner = run(block.first, input, context);
  if (!block.sums) return run(block.second, inner, context);
  const Feature residual = block.residual ? run(*block.residual, input, context) : input;
  return run(block.second, inner, context, &residual);
}

// The original enlarges the coarser predictions to the full size and stacks them; here each stays as it is, since a
// loss at a coarser level takes a label of that size.
std::vector<at::Tensor> DynUNet::forward(const at::Tensor& image, const ForwardContext& context) {
  std::vector<Feature> skips{enter(image)};
  require_divisible({image.size(2), image.size(3), image.size(4)});
  for (const ConvBlock& block : down_) {
    const auto stage = [this, &block, context](const std::vector<Feature>& in) {
      return run_convs(block, in[0], context);
    };
    skips.push_back(run_stage(stage, {skips.back()}, block.range, context));
  }
  Feature feature = skips.back();
  std::vector<at::Tensor> logits;
  for (size_t u = 0; u < up_.size(); ++u) {
    const size_t level = up_.size() - 1 - u;
    const auto stage = [this, &up = up_[u], context](const std::vector<Feature>& in) {
      return run_convs(up.convs, Feature::concat(run(up.up, in[0], context), in[1]), context);
    };
    feature = run_stage(stage, {feature, skips[level + 1]}, up_[u].range, context);
    if (level == 0 || (level < heads_.size() && wants_all_heads(context)))
      logits.insert(logits.begin(), run(heads_[level], feature, context).materialize());
  }
  return logits;
}

}  // namespace

NetworkEntry dynunet_entry() {
  return {"dynunet", "MONAI's DynUNet: nnU-Net's topology, plain or residual blocks, deep supervision",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<DynUNet>(options, seed);
          },
          /*deep_supervision=*/true};
}

}  // namespace vox
