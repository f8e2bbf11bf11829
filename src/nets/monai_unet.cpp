// MONAI's UNet: residual units, PReLU, batch norm unless told otherwise, strided convolutions down from the first level
// on, transposed convolutions up, the encoder's half of a concatenation first. As there, the last transposed
// convolution is followed by norm and activation on the output channels, then by a residual unit without.
#include <torch/torch.h>

#include "base/error.h"
#include "nets/monai_network.h"
#include "nets/registry.h"
#include "nets/stages.h"

namespace vox {
namespace {

using ops::Feature;

class MonaiUNet : public MonaiNetwork {
 public:
  MonaiUNet(const ModelOptions& options, uint64_t seed);

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override { return divisor_of(plan_); }

 private:
  struct Unit {  // convolutions one after another, and around them, in a residual unit, a sum
    std::vector<Block> convs;
    bool sums = false;
    std::optional<Conv> residual;  // none: the input itself
    ParameterRange range;
  };
  struct UnitSpec {
    int64_t in = 1, out = 1, convs = 1;
    Extent3 kernel{3, 3, 3}, stride{1, 1, 1};
    bool last = false;  // of the network: its last convolution stands alone
  };

  struct UpStage {
    std::optional<Block> deconv;
    Upsampling otherwise;
    std::optional<Unit> unit;
    ParameterRange range;
  };
  Unit add_unit(const std::string& name, const UnitSpec& spec);
  Unit add_down(const std::string& name, size_t level);
  UpStage add_up(const std::string& name, size_t level);
  Feature run_unit(const Unit& unit, const Feature& input, const ForwardContext& context) const;
  Feature run_up(const UpStage& up, const Feature& input, const ForwardContext& context) const;

  std::vector<StagePlan> plan_;
  std::vector<Extent3> up_kernels_;
  std::vector<Unit> down_;   // the bottom too
  std::vector<UpStage> up_;  // by level
};

NormSpec own_norm(const ModelOptions& options) {
  NormSpec norm = norm_spec(options, {.kind = ops::NormKind::kBatch});
  if (norm.kind == ops::NormKind::kInstance) norm.affine = false;
  return norm;
}

// MONAI's strides leave out the bottom, which has none; lists with and without it are understood.
std::vector<StagePlan> plan_levels(ModelOptions options) {
  const Extent3 ones{1, 1, 1};
  if (!options.strides.empty()) {
    const bool one_short = options.filters.size() > 1 ? options.strides.size() + 1 == options.filters.size()
                                                      : options.strides.back() != ones;
    if (one_short) options.strides.push_back(ones);
  }
  std::vector<StagePlan> plan = plan_stages(options, {.filters = {32, 64, 128, 256, 512}, .first_stride = {2, 2, 2}});
  if (options.strides.empty()) plan.back().stride = ones;
  VOX_CHECK(plan.back().stride == ones, "model.strides ends with ", plan.back().stride,
            "; the lowest level of monai_unet has stride 1: give one number per level, or leave the last out");
  return plan;
}

MonaiUNet::MonaiUNet(const ModelOptions& options, uint64_t seed)
    : MonaiNetwork(options, seed, own_norm(options),
                   activation_spec(options, {.kind = ops::Activation::kPrelu, .slope = 0.25})),
      plan_(plan_levels(options)),
      up_kernels_(options.up_kernels.empty() ? std::vector<Extent3>(plan_.size() - 1, {3, 3, 3}) : options.up_kernels) {
  VOX_CHECK(up_kernels_.size() == plan_.size() - 1, "model.up_kernels has ", up_kernels_.size(),
            " entries but there are ", plan_.size() - 1, " levels to go up");
  for (const Extent3& kernel : up_kernels_) {
    VOX_CHECK(kernel.z % 2 == 1 && kernel.y % 2 == 1 && kernel.x % 2 == 1, "model.up_kernels has ", kernel,
              "; kernels are odd");
  }
  up_.resize(plan_.size() - 1);
  std::string name = "model";
  std::vector<std::string> names;
  for (size_t level = 0; level + 1 < plan_.size(); ++level) {
    names.push_back(name);
    down_.push_back(add_down(name + ".0", level));
    name += ".1.submodule";
  }
  down_.push_back(add_down(name, plan_.size() - 1));
  for (size_t level = plan_.size() - 1; level-- > 0;) up_[level] = add_up(names[level] + ".2", level);
}

MonaiUNet::Unit MonaiUNet::add_down(const std::string& name, size_t level) {
  return add_unit(name, {.in = level == 0 ? options_.in_channels : plan_[level - 1].filters,
                         .out = plan_[level].filters,
                         .convs = options_.num_res_units,
                         .kernel = plan_[level].kernel,
                         .stride = plan_[level].stride});
}

MonaiUNet::Unit MonaiUNet::add_unit(const std::string& name, const UnitSpec& spec) {
  Unit unit{.convs = {}, .sums = spec.convs > 0, .residual = {}, .range = {mark(), 0}};
  const ops::ConvGeometry geometry{spec.kernel, spec.stride};
  if (!unit.sums) unit.convs.push_back(add_convolution(name, {.in = spec.in, .out = spec.out, .geometry = geometry}));
  for (int64_t c = 0; c < spec.convs; ++c) {
    unit.convs.push_back(
        add_convolution(concat(name, ".conv.unit", c), {.in = c == 0 ? spec.in : spec.out,
                                                        .out = spec.out,
                                                        .geometry = c == 0 ? geometry : ops::ConvGeometry{spec.kernel},
                                                        .alone = spec.last && c + 1 == spec.convs}));
  }
  const bool strides = spec.stride.voxels() != 1;
  if (unit.sums && (strides || spec.in != spec.out)) {
    unit.residual = add_conv(name + ".residual", {.in = spec.in,
                                                  .out = spec.out,
                                                  .geometry = strides ? geometry : ops::ConvGeometry{{1, 1, 1}},
                                                  .bias = plain_bias()});
  }
  unit.range.last = mark();
  return unit;
}

MonaiUNet::UpStage MonaiUNet::add_up(const std::string& name, size_t level) {
  const bool lowest = level + 2 == plan_.size(), top = level == 0, units = options_.num_res_units > 0;
  const int64_t own = plan_[level].filters, in = own + (lowest ? plan_[level + 1].filters : own);
  const int64_t out = top ? options_.out_channels : plan_[level - 1].filters;
  const std::string first = units ? name + ".0" : name;
  const Extent3 kernel = up_kernels_[level], stride = plan_[level].stride, ones{1, 1, 1};
  UpStage up;
  up.range.first = mark();
  if (options_.upsample == "deconv") {
    ops::ConvGeometry geometry{kernel, stride};
    geometry.padding = {(kernel.z - 1) / 2, (kernel.y - 1) / 2, (kernel.x - 1) / 2};
    geometry.output_padding = stride - ones;
    up.deconv = add_convolution(
        first, {.in = in, .out = out, .geometry = geometry, .transposed = true, .alone = top && !units});
  } else {
    up.otherwise = add_upsampling(first, {.in = in, .out = out, .factor = stride, .bias = plain_bias()});
  }
  if (units) up.unit = add_unit(name + ".1", {.in = out, .out = out, .kernel = plan_[level].kernel, .last = top});
  up.range.last = mark();
  return up;
}

Feature MonaiUNet::run_unit(const Unit& unit, const Feature& input, const ForwardContext& context) const {
  Feature inner = input;
  for (const Block& block : unit.convs) inner = run(block, inner, context);
  if (!unit.sums) return inner;
  return ops::add(inner, unit.residual ? run(*unit.residual, input) : input);
}

Feature MonaiUNet::run_up(const UpStage& up, const Feature& input, const ForwardContext& context) const {
  const Feature larger = up.deconv ? run(*up.deconv, input, context) : go_up(up.otherwise, input);
  return up.unit ? run_unit(*up.unit, larger, context) : larger;
}

std::vector<at::Tensor> MonaiUNet::forward(const at::Tensor& image, const ForwardContext& context) {
  std::vector<Feature> skips{enter(image)};
  require_divisible({image.size(2), image.size(3), image.size(4)});
  for (const Unit& unit : down_) {
    const auto stage = [this, &unit, context](const std::vector<Feature>& in) {
      return run_unit(unit, in[0], context);
    };
    skips.push_back(run_stage(stage, {skips.back()}, unit.range, context));
  }
  Feature feature = skips.back();
  for (size_t level = up_.size(); level-- > 0;) {
    const auto stage = [this, &up = up_[level], context](const std::vector<Feature>& in) {
      return run_up(up, Feature::concat(in[0], in[1]), context);
    };
    feature = run_stage(stage, {skips[level + 1], feature}, up_[level].range, context);
  }
  return {feature.materialize().to(at::kFloat)};
}

}  // namespace

NetworkEntry monai_unet_entry() {
  return {"monai_unet", "MONAI's UNet: residual units, batch norm, PReLU",
          [](const ModelOptions& options, uint64_t seed) -> std::unique_ptr<Network> {
            return std::make_unique<MonaiUNet>(options, seed);
          }};
}

}  // namespace vox
