#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "base/error.h"
#include "nets/network.h"

namespace vox {
namespace {

ModelOptions narrow(const std::string& architecture) {
  ModelOptions options;
  options.architecture = architecture;
  options.in_channels = 2;
  options.out_channels = 3;
  options.filters = {4, 6, 8};
  return options;
}

std::vector<at::Tensor> statistics(const Network& network, at::Tensor Parameter::*which) {
  std::vector<at::Tensor> all;
  for (const Parameter& p : network.parameters().all()) {
    if (is_running(p.spec.kind)) all.push_back((p.*which).clone());
  }
  return all;
}

TEST(RunningStatistics, ABadStepLeavesThemAsTheyWere) {
  const auto network = make_network(narrow("monai_unet"), 1);
  ParameterSet& parameters = network->parameters();
  const auto fresh = statistics(*network, &Parameter::master);
  network->forward(at::full({1, 2, 8, 8, 8}, std::nan("")), {.training = true});
  parameters.settle_statistics(at::ones({}));
  const auto kept = statistics(*network, &Parameter::master), read = statistics(*network, &Parameter::value);
  for (size_t i = 0; i < fresh.size(); ++i) {
    EXPECT_TRUE(at::equal(kept[i], fresh[i]));
    EXPECT_TRUE(at::equal(read[i], fresh[i]));
  }
  const at::Tensor image = at::randn({2, 2, 8, 8, 8});
  network->forward(image, {.training = true});
  EXPECT_TRUE(at::equal(statistics(*network, &Parameter::master)[0], fresh[0]));  // until the step is known to be good
  parameters.settle_statistics(at::zeros({}));
  // A tenth of the way to the mean of the first convolution's output.
  const std::string unit = "model.0.conv.unit0.";
  const at::Tensor raw = at::conv3d(image, parameters.find(unit + "conv.weight")->master,
                                    parameters.find(unit + "conv.bias")->master, 2, 1);
  EXPECT_TRUE(
      at::allclose(parameters.find(unit + "adn.N.running_mean")->master, 0.1 * raw.mean({0, 2, 3, 4}), 1e-4, 1e-6));
  EXPECT_EQ(parameters.find(unit + "adn.N.num_batches_tracked")->master.item<double>(), 1);
}

TEST(RunningStatistics, RecomputingAStageDoesNotMoveThemTwice) {
  const at::Tensor image = at::randn({2, 2, 8, 8, 8});
  std::vector<std::vector<at::Tensor>> moved;
  for (const bool recompute : {false, true}) {
    ModelOptions options = narrow("monai_unet");
    options.use_checkpoint = recompute;
    const auto network = make_network(options, 1);
    network->forward(image, {.training = true})[0].pow(2).mean().backward();
    network->parameters().settle_statistics(at::zeros({}));
    moved.push_back(statistics(*network, &Parameter::master));
  }
  EXPECT_NE(moved[0][0].abs().sum().item<double>(), 0);
  for (size_t i = 0; i < moved[0].size(); ++i) EXPECT_TRUE(at::allclose(moved[0][i], moved[1][i])) << i;
}

struct KnownSize {
  const char* architecture;
  std::vector<int64_t> filters;
  int64_t out, parameters;
  double gmac = 0;  // of a patch of 112^3; 0: not known
  void (*change)(ModelOptions& options) = [](ModelOptions&) {};
};

// Counted in Python on the originals: one multiply-add per weight and position, of convolutions alone.
TEST(MonaiNetworks, HaveTheOriginalsParametersAndMultiplyAdds) {
  const auto instance = [](ModelOptions& o) { o.norm = "instance"; };
  const auto without_units = [](ModelOptions& o) { o.norm = "instance", o.num_res_units = 0; };
  const KnownSize known[] = {
      {"monai_unet", {32, 64, 128, 256}, 1, 4740364, 31.7},
      {"monai_unet", {32, 64, 128, 256}, 1, 4738058, 31.7, instance},
      {"monai_unet", {16, 32, 64}, 1, 281176},
      {"monai_unet", {16, 32, 64, 128, 256}, 2, 4808917},
      {"monai_unet", {16, 32, 64}, 2, 112886, 0, without_units},
      {"monai_basic_unet3d", {}, 2, 5749410},
      {"dynunet", {32, 64, 128, 256}, 2, 5644930, 0, [](ModelOptions& o) { o.residual = true; }}};
  for (const KnownSize& size : known) {
    ModelOptions options = narrow(size.architecture);
    options.filters = size.filters;
    options.in_channels = 1;
    options.out_channels = size.out;
    size.change(options);
    const auto network = make_network(options, 1);
    EXPECT_EQ(network->parameters().count(), size.parameters) << size.architecture;
    if (size.gmac == 0) continue;
    EXPECT_NEAR(network->gmac({112, 112, 112}), size.gmac, 0.05) << size.architecture;
  }
}

TEST(Networks, HalfPrecisionGivesNearlyTheSameLogitsInFloat32) {
  const at::NoGradGuard no_grad;
  for (const char* name : {"unet", "resenc_unet", "monai_unet", "monai_basic_unet3d", "dynunet"}) {
    ModelOptions options = narrow(name);
    options.convs_per_stage = {1};
    const auto network = make_network(options, 3);
    const Extent3 d = network->divisor();
    // Twice the divisor each way: a norm over two voxels alone would turn the rounding of one into another sign.
    const at::Tensor image = at::randn({1, 2, 2 * d.z, 2 * d.y, 2 * d.x}), expected = network->forward(image)[0];
    network->parameters().set_compute_type(at::kBFloat16);
    const at::Tensor half = network->forward(image)[0];
    EXPECT_EQ(half.scalar_type(), at::kFloat) << name;
    EXPECT_LT((half - expected).norm().item<double>(), 0.1 * expected.norm().item<double>()) << name;
  }
}

TEST(ResencUNet, GatesOfEveryKindChangeTheOutputAndReachTheirWeights) {
  const at::Tensor image = at::randn({1, 2, 8, 8, 8});
  for (const char* kind : {"channel", "spatial", "both"}) {
    ModelOptions options = narrow("resenc_unet");
    options.convs_per_stage = {1};
    options.squeeze_excitation = kind;
    const auto network = make_network(options, 1);
    for (Parameter& p : network->parameters().all()) {  // a fresh block is its skip, whatever the gates say
      const at::NoGradGuard no_grad;
      if (p.spec.kind == ParameterKind::kNormScale) p.master.fill_(1);
    }
    network->forward(image, {.training = true})[0].pow(2).mean().backward();
    const std::string gates = "encoder.stages.1.blocks.0.squeeze_excitation.";
    for (const char* layer : {"fc1", "fc2", "spatial"}) {
      const Parameter* weight = network->parameters().find(gates + layer + ".weight");
      const bool has =
          std::string(layer) == "spatial" ? kind != std::string("channel") : kind != std::string("spatial");
      ASSERT_EQ(weight != nullptr, has) << kind << layer;
      if (!has) continue;
      EXPECT_GT(weight->value.grad().abs().sum().item<double>(), 0) << kind << layer;
    }
    EXPECT_GT(network->gmac({8, 8, 8}), 0);
  }
}

std::string refusal(const char* architecture, void (*change)(ModelOptions&)) {
  ModelOptions options = narrow(architecture);
  change(options);
  try {
    make_network(options, 1);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Networks, OptionsThatTheOriginalCannotHaveAreRefusedByName) {
  const auto strided = [](ModelOptions& o) { o.strides = {{2, 2, 2}, {2, 2, 2}, {2, 2, 2}}; };
  for (const char* name : {"dynunet", "monai_unet", "monai_basic_unet3d"})
    EXPECT_THAT(refusal(name, strided), testing::HasSubstr("model.strides")) << name;
  const auto grouped = [](ModelOptions& o) { o.norm = "group"; };
  EXPECT_THAT(refusal("monai_unet", grouped), testing::HasSubstr("model.norm_groups"));
  const auto deep = [](ModelOptions& o) { o.deep_supervision = true, o.deep_supervision_heads = 2; };
  EXPECT_THAT(refusal("dynunet", deep), testing::HasSubstr("model.deep_supervision_heads"));
  const auto shuffled = [](ModelOptions& o) { o.upsample = "pixelshuffle"; };
  for (const char* name : {"unet", "resenc_unet", "dynunet"})
    EXPECT_THAT(refusal(name, shuffled), testing::HasSubstr("model.upsample")) << name;
}

TEST(MonaiBasicUNet3d, TheWidthAtFullResolutionIsTheSixthEntryOrTheFirst) {
  const auto width = [](const std::vector<int64_t>& filters) {
    ModelOptions options = narrow("monai_basic_unet3d");
    options.filters = filters;
    return make_network(options, 1)->parameters().find("final_conv.weight")->master.size(1);
  };
  EXPECT_EQ(width({4, 6, 8, 10}), 4);
  EXPECT_EQ(width({4, 6, 8, 10, 12}), 4);
  EXPECT_EQ(width({4, 6, 8, 10, 12, 14}), 14);
  EXPECT_EQ(width({5}), 5);
}

TEST(MonaiBasicUNet3d, TakesSizesThatAreNoMultiples) {
  const auto network = make_network(narrow("monai_basic_unet3d"), 1);
  EXPECT_EQ(network->forward(at::randn({1, 2, 17, 35, 16}))[0].sizes(), at::IntArrayRef({1, 3, 17, 35, 16}));
  EXPECT_THROW(network->forward(at::randn({1, 2, 15, 32, 32})), Error);
}

}  // namespace
}  // namespace vox
