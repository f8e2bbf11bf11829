// RSUNet (Lee et al. 2017, as PyTorch Connectomics has it): residual blocks that normalise and activate before they
// convolve, max pooling, fixed interpolation up, skips that are added. Parameter names are the original's.
// Outputs are finest first here; the original calls the coarsest ds_1 (it is ds_heads.0 there and here).
#include <torch/torch.h>

#include <cmath>

#include "base/error.h"
#include "nets/layers.h"
#include "nets/registry.h"
#include "nets/stages.h"

namespace vox {
namespace {

using ops::Activation;
using ops::Feature;
using ops::NormKind;

struct RsNormAct {
  Norm norm;
  Act act;
};

struct RsBlock {  // three parts: into the width, a residual unit, out again
  RsNormAct before_pre, before_first, before_second, before_post;
  Conv pre, first, second, post;
};

struct RsLevel {
  RsBlock block;
  Conv up, projection;  // of the decoder
  ParameterRange range;
};

class RSUNet : public LayerNetwork {
 public:
  RSUNet(const ModelOptions& options, uint64_t seed);

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override { return divisor_of(plan_); }

 private:
  struct Widths {
    int64_t in = 1, out = 1;
  };
  RsNormAct add_norm_act(const std::string& name, int64_t channels);
  RsBlock add_block(const std::string& name, const Widths& widths, const Extent3& kernel);
  Conv add_interpolation(const std::string& name, int64_t channels, const Extent3& factor);
  void add_decoder_level(size_t level, size_t index);
  void add_heads();

  Feature apply(const RsNormAct& layer, const Feature& input, const ForwardContext& context) const;
  Feature run_block(const RsBlock& block, const Feature& input, const ForwardContext& context) const;
  Feature run_down(size_t level, const Feature& above, const ForwardContext& context) const;
  Feature run_up(size_t index, const Feature& below, const Feature& skip, const ForwardContext& context) const;

  std::vector<StagePlan> plan_;
  NormSpec norm_;
  ActivationSpec activation_;
  std::vector<RsLevel> down_;  // the finest first
  std::vector<RsLevel> up_;    // the coarsest first
  RsNormAct final_;
  Conv head_;
  std::vector<Conv> coarse_heads_;  // the coarsest first: of the bottleneck, then of the levels above it
};

std::vector<StagePlan> plan_rsunet(const ModelOptions& options) {
  std::vector<StagePlan> plan = plan_stages(options, {.filters = {16, 32, 64, 128}, .convs = 2, .stride = {1, 2, 2}});
  require_full_resolution(plan);
  for (size_t s = 0; s < plan.size(); ++s) {
    VOX_CHECK(plan[s].stride.y == plan[s].stride.x, "model.strides has ", plan[s].stride,
              "; rsunet interpolates with one factor in y and x");
    if (static_cast<int64_t>(s) < options.depth_2d) plan[s].kernel = {1, 3, 3};
  }
  return plan;
}

RSUNet::RSUNet(const ModelOptions& options, uint64_t seed)
    : LayerNetwork(options, seed, WeightInit::kKaimingFanOut),
      plan_(plan_rsunet(options)),
      norm_(norm_spec(options, {.kind = NormKind::kBatch})),
      activation_(activation_spec(options, {Activation::kRelu, 0})) {
  norm_.affine = norm_.kind != NormKind::kInstance;
  int64_t channels = options.in_channels;
  for (size_t s = 0; s < plan_.size(); ++s) {
    RsLevel level{.block = {}, .up = {}, .projection = {}, .range = {mark(), 0}};
    const std::string name = s == 0 ? std::string("input_conv") : concat("down_blocks.", s - 1, ".conv");
    level.block = add_block(name, {channels, plan_[s].filters}, plan_[s].kernel);
    level.range.last = mark();
    channels = plan_[s].filters;
    down_.push_back(std::move(level));
  }
  for (size_t level = plan_.size() - 1; level > 0; --level) add_decoder_level(level, plan_.size() - 1 - level);
  add_heads();
}

void RSUNet::add_heads() {
  constexpr size_t kMostHeads = 4;
  final_ = add_norm_act("final_norm", plan_[0].filters);
  const auto add_head = [&](const std::string& name, int64_t channels) {
    return add_conv(name, {.in = channels, .out = options_.out_channels, .geometry = {{1, 1, 1}}, .head = true});
  };
  head_ = add_head("output_head", plan_[0].filters);
  if (!options_.deep_supervision) return;
  for (size_t i = 0; i < std::min(kMostHeads, plan_.size() - 1); ++i) {
    coarse_heads_.push_back(add_head(concat("ds_heads.", i), plan_[plan_.size() - 1 - i].filters));
  }
}

// From `level` up to the one above it.
void RSUNet::add_decoder_level(size_t level, size_t index) {
  const std::string name = concat("up_blocks.", index);
  const int64_t from = plan_[level].filters, to = plan_[level - 1].filters;
  RsLevel result{.block = {}, .up = {}, .projection = {}, .range = {mark(), 0}};
  result.up = add_interpolation(name + ".up", from, plan_[level].stride);
  result.projection = add_conv(name + ".proj", {.in = from, .out = to, .geometry = {{1, 1, 1}}, .bias = Bias::kNone});
  result.block = add_block(name + ".conv", {to, to}, plan_[level - 1].kernel);
  result.range.last = mark();
  up_.push_back(std::move(result));
}

RsNormAct RSUNet::add_norm_act(const std::string& name, int64_t channels) {
  NormSpec spec = norm_;
  spec.groups = std::min(spec.groups, channels);
  while (channels % spec.groups != 0) --spec.groups;  // the original's way with odd widths
  return {add_norm(name + ".norm", channels, spec), add_activation(name + ".act", activation_)};
}

RsBlock RSUNet::add_block(const std::string& name, const Widths& widths, const Extent3& kernel) {
  const auto conv = [&](const std::string& which, int64_t in) {
    return add_conv(name + which, {.in = in, .out = widths.out, .geometry = {kernel}, .bias = Bias::kNone});
  };
  RsBlock block;
  block.before_pre = add_norm_act(name + ".pre.0", widths.in);
  block.pre = conv(".pre.1", widths.in);
  block.before_first = add_norm_act(name + ".res.norm_act1", widths.out);
  block.first = conv(".res.conv1", widths.out);
  block.before_second = add_norm_act(name + ".res.norm_act2", widths.out);
  block.second = conv(".res.conv2", widths.out);
  block.before_post = add_norm_act(name + ".post.0", widths.out);
  block.post = conv(".post.1", widths.out);
  return block;
}

// A transposed convolution of each channel whose weights fall off linearly from the middle in y and x. In z they do
// not fall at all: with a factor of 2 there the original doubles what it interpolates, and so do we.
Conv RSUNet::add_interpolation(const std::string& name, int64_t channels, const Extent3& factor) {
  Conv conv{.name = name, .geometry = {.stride = factor, .groups = channels}, .transposed = true};
  Extent3 padding;
  for (int a = 0; a < 3; ++a) {
    conv.geometry.kernel[a] = 2 * factor[a] - factor[a] % 2;
    padding[a] = factor[a] / 2;
  }
  conv.geometry.padding = padding;
  const Extent3& k = conv.geometry.kernel;
  conv.weight =
      add_parameter({name + ".weight", ParameterKind::kConstant, {channels, 1, k.z, k.y, k.x}, false, false}, 0);
  const double half = std::ceil(static_cast<double>(k.x) / 2), middle = static_cast<double>(k.x - 1) / (2 * half);
  const at::Tensor ramp = 1 - (at::arange(k.x, at::kDouble) / half - middle).abs();
  parameters_.load(name + ".weight",
                   (ramp.view({-1, 1}) * ramp).to(at::kFloat).expand({channels, 1, k.z, k.y, k.x}).contiguous());
  return conv;
}

Feature RSUNet::apply(const RsNormAct& layer, const Feature& input, const ForwardContext& context) const {
  return ops::apply(input, epilogue(layer.norm, layer.act, context));
}

Feature RSUNet::run_block(const RsBlock& block, const Feature& input, const ForwardContext& context) const {
  const auto then = [&](const RsNormAct& next) { return epilogue(next.norm, next.act, context); };
  const Feature entered = run(block.pre, apply(block.before_pre, input, context));
  const Feature activated = apply(block.before_first, entered, context);
  // Without a norm the original's activations work in place, on the residual too.
  const Activation kind = activation_.kind;
  const bool in_place = kind == Activation::kRelu || kind == Activation::kLeakyRelu || kind == Activation::kElu;
  const Feature& residual = norm_.kind == NormKind::kNone && in_place ? activated : entered;
  ops::Epilogue sum;
  sum.residual = &residual;
  const Feature added = run(block.second, run(block.first, activated, then(block.before_second)), sum);
  return run(block.post, apply(block.before_post, added, context));
}

Feature RSUNet::run_down(size_t level, const Feature& above, const ForwardContext& context) const {
  const auto blocks = [this, level, context](const std::vector<Feature>& in) {
    const Extent3& stride = plan_[level].stride;
    const bool pools = stride.voxels() > 1;
    return run_block(down_[level].block, pools ? ops::max_pool(in[0], {stride, stride}) : in[0], context);
  };
  return run_stage(blocks, {above}, down_[level].range, context);
}

Feature RSUNet::run_up(size_t index, const Feature& below, const Feature& skip, const ForwardContext& context) const {
  const auto blocks = [this, index, context](const std::vector<Feature>& in) {
    const RsLevel& level = up_[index];
    ops::Epilogue sum;
    sum.residual = &in[1];
    return run_block(level.block, run(level.projection, run(level.up, in[0]), sum), context);
  };
  return run_stage(blocks, {below, skip}, up_[index].range, context);
}

std::vector<at::Tensor> RSUNet::forward(const at::Tensor& image, const ForwardContext& context) {
  require_divisible({image.size(2), image.size(3), image.size(4)});
  std::vector<Feature> down;
  Feature feature = enter(image);
  for (size_t level = 0; level < down_.size(); ++level) {
    feature = run_down(level, feature, context);
    down.push_back(feature);
  }
  std::vector<at::Tensor> logits;
  for (size_t index = 0; index < up_.size(); ++index) {
    if (wants_all_heads(context) && index < coarse_heads_.size())
      logits.insert(logits.begin(), run(coarse_heads_[index], feature).materialize());
    feature = run_up(index, feature, down[up_.size() - 1 - index], context);
  }
  logits.insert(logits.begin(), run(head_, apply(final_, feature, context)).materialize());
  return logits;
}

}  // namespace

NetworkEntry rsunet_entry() {
  return {"rsunet", "Residual symmetric U-Net of PyTorch Connectomics: anisotropic pooling, added skips",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<RSUNet>(options, seed);
          },
          /*deep_supervision=*/true, /*dropout=*/false};
}

}  // namespace vox
