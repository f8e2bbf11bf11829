// MedNeXt (Roy et al. 2023; MedNeXtV1 of MIC-DKFZ): depthwise convolution, a norm of each channel, 1x1 up, GELU and 1x1
// down, residuals everywhere, skips that are added. Parameter names are the original's.
#include <torch/torch.h>

#include <array>

#include "base/error.h"
#include "nets/layers.h"
#include "nets/registry.h"

namespace vox {
namespace {

using ops::Feature;

constexpr size_t kMedLevels = 5, kMedStages = 2 * kMedLevels - 1;  // down to the bottleneck, and up again

using PerMedStage = std::array<int64_t, kMedStages>;

struct MedNeXtSize {
  const char* name;
  PerMedStage expansion, blocks;
};
constexpr PerMedStage kTwos{2, 2, 2, 2, 2, 2, 2, 2, 2}, kThreeToEight{3, 4, 8, 8, 8, 8, 8, 4, 3};
constexpr PerMedStage kTwoToFour{2, 3, 4, 4, 4, 4, 4, 3, 2}, kThreeToFour{3, 4, 4, 4, 4, 4, 4, 4, 3};
constexpr MedNeXtSize kMedSizes[] = {{"S", kTwos, kTwos},
                                     {"B", kTwoToFour, kTwos},
                                     {"M", kTwoToFour, kThreeToFour},
                                     {"L", kThreeToEight, kThreeToEight}};

struct MedBlock {
  Conv conv1, conv2, conv3;
  Conv residual;  // of a block that changes the resolution; the others add their input
  Norm norm;
  int gamma = -1, beta = -1;  // of the global response norm
};

struct MedStage {
  std::vector<MedBlock> blocks;
  ParameterRange range;
};

MedNeXtSize mednext_size_of(const ModelOptions& options) {
  const auto found = std::find_if(std::begin(kMedSizes), std::end(kMedSizes),
                                  [&](const MedNeXtSize& preset) { return options.mednext_size == preset.name; });
  VOX_CHECK(found != std::end(kMedSizes), "model.mednext_size is \"", options.mednext_size,
            "\"; there is S, B, M and L");
  return *found;
}

PerMedStage per_mednext_stage(const char* key, const std::vector<int64_t>& given, const PerMedStage& preset) {
  if (given.empty()) return preset;
  VOX_CHECK(given.size() == 1 || given.size() == kMedStages, "model.", key, " has ", given.size(),
            " entries; a MedNeXt has 9 stages (four down, the bottleneck, four up): give one for each, or one for all");
  PerMedStage result{};
  for (size_t s = 0; s < kMedStages; ++s) result[s] = given[given.size() == 1 ? 0 : s];
  for (const int64_t value : result) VOX_CHECK(value > 0, "model.", key, " has ", value, "; expected 1 or more");
  return result;
}

int64_t mednext_width(const ModelOptions& options) {
  constexpr int64_t kOriginal = 32;
  if (options.filters.empty()) return kOriginal;
  VOX_CHECK(options.filters[0] > 0, "model.filters has ", options.filters[0], "; expected 1 or more");
  const bool one = options.filters.size() == 1;
  for (size_t s = 0; s < options.filters.size() && !one; ++s) {
    VOX_CHECK(options.filters.size() == kMedLevels && options.filters[s] == options.filters[0] << s,
              "a MedNeXt doubles its width four times: model.filters is the first width alone, such as 32");
  }
  return options.filters[0];
}

class MedNeXt : public LayerNetwork {
 public:
  MedNeXt(const ModelOptions& options, uint64_t seed);

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override { return {16, 16, 16}; }

 private:
  enum class Change { kNone, kDown, kUp };
  struct BlockSpec {
    int64_t in = 1, out = 1, expansion = 2;
    Change change = Change::kNone;
    bool responds = false;  // has a global response norm
  };
  MedBlock add_block(const std::string& name, const BlockSpec& spec);
  void add_stage(size_t stage);
  int64_t width(size_t level) const { return width_ << level; }

  Feature run_block(const MedBlock& block, const Feature& input, const ForwardContext& context) const;
  Feature respond(const MedBlock& block, const Feature& input) const;
  Feature run_down(size_t stage, const Feature& input, const ForwardContext& context) const;
  Feature run_up(size_t stage, const Feature& below, const Feature& skip, const ForwardContext& context) const;

  int64_t width_;
  PerMedStage expansion_, blocks_;
  Conv stem_;
  std::vector<MedStage> stages_;  // in the order in which they run
  std::vector<Conv> heads_;       // finest first
};

MedNeXt::MedNeXt(const ModelOptions& options, uint64_t seed)
    : LayerNetwork(options, seed, WeightInit::kTorch),
      width_(mednext_width(options)),
      expansion_(per_mednext_stage("mednext_expansion", options.mednext_expansion, mednext_size_of(options).expansion)),
      blocks_(per_mednext_stage("convs_per_stage", options.convs_per_stage, mednext_size_of(options).blocks)) {
  VOX_CHECK(options.mednext_kernel > 0 && options.mednext_kernel % 2 == 1, "model.mednext_kernel is ",
            options.mednext_kernel, "; it must be odd: 3, 5 or 7");
  // The original has it to checkpoint stages that take no gradient, and every state dict holds it. Nothing reads it.
  add_parameter({"dummy_tensor", ParameterKind::kOther, {1}, /*cancelled=*/true, false}, 1);
  stem_ = add_conv("stem", {.in = options.in_channels, .out = width_, .geometry = {{1, 1, 1}}});
  for (size_t stage = 0; stage < kMedStages; ++stage) add_stage(stage);
  for (size_t level = 0; level < (options.deep_supervision ? kMedLevels : 1); ++level) {
    heads_.push_back(add_conv(
        concat("out_", level, ".conv_out"),
        {.in = width(level), .out = options.out_channels, .geometry = {{1, 1, 1}}, .transposed = true, .head = true}));
  }
}

void MedNeXt::add_stage(size_t stage) {
  const bool rises = stage >= kMedLevels;
  const size_t level = rises ? kMedStages - 1 - stage : stage;
  const int64_t expansion = expansion_[stage];
  const bool grn = options_.mednext_grn;
  MedStage result{.blocks = {}, .range = {mark(), 0}};
  if (rises) {
    result.blocks.push_back(
        add_block(concat("up_", level), {width(level + 1), width(level), expansion, Change::kUp, grn}));
  } else if (level > 0) {
    // The original forgets to tell its first one of the response norm.
    result.blocks.push_back(add_block(concat("down_", level - 1),
                                      {width(level - 1), width(level), expansion, Change::kDown, grn && level > 1}));
  }
  const std::string name = rises                     ? concat("dec_block_", level)
                           : level == kMedLevels - 1 ? std::string("bottleneck")
                                                     : concat("enc_block_", level);
  for (int64_t b = 0; b < blocks_[stage]; ++b) {
    result.blocks.push_back(
        add_block(concat(name, ".", b), {width(level), width(level), expansion, Change::kNone, grn}));
  }
  result.range.last = mark();
  stages_.push_back(std::move(result));
}

MedBlock MedNeXt::add_block(const std::string& name, const BlockSpec& spec) {
  const int64_t k = options_.mednext_kernel, wide = spec.expansion * spec.in;
  const int64_t step = spec.change == Change::kNone ? 1 : 2;
  const bool up = spec.change == Change::kUp;
  const Extent3 one{1, 1, 1}, stride{step, step, step};
  MedBlock block;
  block.conv1 = add_conv(
      name + ".conv1",
      {.in = spec.in,
       .out = spec.in,
       .geometry = {.kernel = {k, k, k}, .stride = stride, .groups = spec.in, .padding = Extent3{k / 2, k / 2, k / 2}},
       .bias = Bias::kCancelled,
       .transposed = up});
  block.norm = add_norm(name + ".norm", spec.in, {.kind = ops::NormKind::kInstance});
  block.conv2 = add_conv(name + ".conv2", {.in = spec.in, .out = wide, .geometry = {one}});
  block.conv3 = add_conv(name + ".conv3", {.in = wide, .out = spec.out, .geometry = {one}});
  if (spec.responds) {
    block.gamma = add_parameter({name + ".grn_gamma", ParameterKind::kOther, {1, wide, 1, 1, 1}, false, false}, 0);
    block.beta = add_parameter({name + ".grn_beta", ParameterKind::kOther, {1, wide, 1, 1, 1}, false, false}, 0);
  }
  if (spec.change != Change::kNone) {
    block.residual =
        add_conv(name + ".res_conv", {.in = spec.in, .out = spec.out, .geometry = {one, stride}, .transposed = up});
  }
  return block;
}

// Global response normalisation (Woo et al. 2023).
Feature MedNeXt::respond(const MedBlock& block, const Feature& input) const {
  if (block.gamma < 0) return input;
  const at::Tensor& x = input.materialize();
  if (x.is_meta()) return ops::apply(input, {});
  const at::Tensor strength = at::linalg_vector_norm(x, 2, at::IntArrayRef{2, 3, 4}, true, at::kFloat);
  const at::Tensor relative = strength / (strength.mean(1, true) + 1e-6);
  const at::Tensor factor = (parameters_[block.gamma] * relative + 1).to(x.scalar_type());
  return Feature::plain(at::addcmul(parameters_[block.beta].to(x.scalar_type()), x, factor));
}

// On the way up everything runs on 2n - 1 voxels, and the missing plane is put in front as zeros.
Feature MedNeXt::run_block(const MedBlock& block, const Feature& input, const ForwardContext& context) const {
  const Feature mixed = run(block.conv1, input, epilogue(block.norm, {}, context));
  ops::Epilogue gelu;
  gelu.activation.kind = ops::Activation::kGelu;
  const Feature widened = respond(block, run(block.conv2, mixed, gelu));
  const Feature residual = block.residual.weight < 0 ? input : run(block.residual, input);
  ops::Epilogue sum;
  sum.residual = &residual;
  const Feature result = run(block.conv3, widened, sum);
  return block.conv1.transposed ? ops::pad(result, {1, 1, 1}, {0, 0, 0}, ops::PadWith::kZeros) : result;
}

Feature MedNeXt::run_down(size_t stage, const Feature& input, const ForwardContext& context) const {
  const auto blocks = [this, stage, context](const std::vector<Feature>& in) {
    Feature feature = in[0];
    for (const MedBlock& block : stages_[stage].blocks) feature = run_block(block, feature, context);
    return feature;
  };
  return run_stage(blocks, {input}, stages_[stage].range, context);
}

Feature MedNeXt::run_up(size_t stage, const Feature& below, const Feature& skip, const ForwardContext& context) const {
  const auto blocks = [this, stage, context](const std::vector<Feature>& in) {
    const std::vector<MedBlock>& all = stages_[stage].blocks;
    Feature feature = ops::add(run_block(all[0], in[0], context), in[1]);
    for (size_t b = 1; b < all.size(); ++b) feature = run_block(all[b], feature, context);
    return feature;
  };
  return run_stage(blocks, {below, skip}, stages_[stage].range, context);
}

std::vector<at::Tensor> MedNeXt::forward(const at::Tensor& image, const ForwardContext& context) {
  require_divisible({image.size(2), image.size(3), image.size(4)});
  std::vector<Feature> down;
  Feature feature = run(stem_, enter(image));
  for (size_t stage = 0; stage < kMedLevels; ++stage) {
    feature = run_down(stage, feature, context);
    down.push_back(feature);
  }
  std::vector<at::Tensor> logits;
  for (size_t level = kMedLevels; level-- > 0;) {
    if (level + 1 < kMedLevels) feature = run_up(kMedStages - 1 - level, feature, down[level], context);
    if (level == 0 || wants_all_heads(context))
      logits.insert(logits.begin(), run(heads_[level], feature).materialize());
  }
  return logits;
}

}  // namespace

NetworkEntry mednext_entry() {
  return {"mednext", "MedNeXt S, B, M and L: depthwise convolutions, wide 1x1 layers, added skips",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<MedNeXt>(options, seed);
          },
          /*deep_supervision=*/true, /*dropout=*/false};
}

}  // namespace vox
