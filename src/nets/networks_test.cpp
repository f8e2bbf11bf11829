// What every network of the list keeps: one loop over the registry each, so that a new one is tested with its line.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "nets/network.h"
#include "nets/registry.h"

namespace vox {
namespace {

// A module with everything that a set of parameters must cope with: a batch norm, a shared weight, an integer buffer.
std::string script_file() {
  static const std::string path = [] {
    torch::manual_seed(1);
    torch::jit::Module module("toy");
    const auto parameter = [&](const char* name, at::IntArrayRef shape) {
      module.register_parameter(name, at::randn(shape).mul_(0.3).set_requires_grad(true), false);
    };
    module.register_attribute("training", c10::BoolType::get(), true);
    parameter("first", {8, 2, 3, 3, 3});
    parameter("second", {3, 8, 3, 3, 3});
    module.register_parameter("again", module.attr("second").toTensor(), false);
    module.register_buffer("running_mean", at::zeros({8}));
    module.register_buffer("running_var", at::ones({8}));
    module.register_buffer("offset", at::zeros({1}, at::kLong));
    module.define(R"(
def forward(self, x):
    y = torch.conv3d(x, self.first, None, [1, 1, 1], [1, 1, 1])
    y = torch.batch_norm(y, None, None, self.running_mean, self.running_var, self.training, 0.1, 1e-5, False)
    return torch.conv3d(torch.relu(y), 0.5 * (self.second + self.again), None, [1, 1, 1], [1, 1, 1]) + self.offset
)");
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / concat("voxloom_networks_test_", getpid(), ".pt");
    module.save(file.string());
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove(script_file(), ignored);
    });
    return file.string();
  }();
  return path;
}

ModelOptions toy(const std::string& name) {
  ModelOptions options;
  options.architecture = name;
  options.in_channels = 2;
  options.out_channels = 3;
  options.filters = {4, 6, 8};
  if (name == "monai_basic_unet3d") options.filters = {4};
  options.deep_supervision =
      name == "unet" || name == "resenc_unet" || name == "dynunet" || name == "mednext" || name == "rsunet";
  if (name == "mednext" || name == "openkbp_unet" || name == "cascade_unet") options.filters = {2};
  if (name == "mednext") options.convs_per_stage = {1};
  options.mednext_grn = true;
  if (name == "torchscript") options.file = script_file();
  return options;
}

at::Tensor image_for(const Network& network, int64_t samples) {
  Extent3 size = network.divisor();
  for (int a = 0; a < 3; ++a) size[a] = std::max<int64_t>(size[a], 8);
  if (size.z < 64) size.y *= 2;
  torch::manual_seed(2);
  return at::randn({samples, 2, size.z, size.y, size.x});
}

std::vector<at::Tensor> grads_of(const ModelOptions& options) {
  const auto network = make_network(options, 5);
  at::Tensor sum = at::zeros({});
  for (const at::Tensor& head : network->forward(image_for(*network, 2), {.training = true, .seed = 1}))
    sum = sum + head.pow(2).mean();
  sum.backward();
  network->parameters().collect_grads();
  std::vector<at::Tensor> grads;
  for (const Parameter& p : network->parameters().all()) grads.push_back(p.grad);
  return grads;
}

class EveryNetwork : public testing::TestWithParam<std::string> {
 protected:
  ModelOptions options_ = toy(GetParam());
  bool scripted_ = GetParam() == "torchscript";
};

TEST_P(EveryNetwork, MakesLogitsOfTheImagesSizeAndRefusesOthers) {
  const auto network = make_network(options_, 1);
  const Extent3 d = network->divisor();
  const at::Tensor image = image_for(*network, 2);
  const auto logits = network->forward(image);
  ASSERT_EQ(logits.size(), 1u);
  EXPECT_EQ(logits[0].sizes(), at::IntArrayRef({2, 3, image.size(2), image.size(3), image.size(4)}));
  EXPECT_EQ(logits[0].scalar_type(), at::kFloat);
  EXPECT_THROW(network->forward(at::randn({1, 1, d.z, d.y, d.x})), Error);
  if (scripted_) return;  // any size fits, and it does not tell its layers
  EXPECT_THROW(network->forward(at::randn({1, 2, d.z, d.y / 2, d.x})), Error);
  EXPECT_GT(network->gmac(d), 0);
}

TEST_P(EveryNetwork, GivesEqualGradientsWithCheckpointing) {
  options_.dropout = 0.2;
  const auto plain = grads_of(options_);
  options_.use_checkpoint = true;
  if (scripted_) {
    EXPECT_THROW(make_network(options_, 1), Error);
    return;
  }
  const auto recomputed = grads_of(options_);
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(plain[i].defined(), recomputed[i].defined()) << i;
    if (!plain[i].defined()) continue;
    // What a norm cancels is zero but for rounding, which follows the order of sums.
    EXPECT_LE((plain[i] - recomputed[i]).norm().item<double>(), 1e-5 * plain[i].norm().item<double>() + 1e-6) << i;
  }
}

TEST_P(EveryNetwork, DropsInTrainingOrSaysThatItDoesNot) {
  const auto trained = [&](double rate) {
    options_.dropout = rate;
    const auto network = make_network(options_, 1);
    return network->forward(image_for(*network, 2), {.training = true, .seed = 1})[0];
  };
  const bool drops = !at::equal(trained(0.5), trained(0));
  options_.dropout = 0.5;
  options_.deep_supervision = false;
  const std::vector<IgnoredOption> ignored = ignored_model_options(options_);
  ASSERT_EQ(ignored.size(), drops ? 0u : 1u);
  for (const IgnoredOption& option : ignored) EXPECT_EQ(option.key, "model.dropout");
}

TEST_P(EveryNetwork, HasGradientsButForCancelledParameters) {
  const auto grads = grads_of(options_);
  const auto network = make_network(options_, 1);
  for (size_t i = 0; i < grads.size(); ++i) {
    const ParameterSpec& spec = network->parameters().all()[i].spec;
    if (!options_.deep_supervision && spec.name.find("seg_layers") != std::string::npos) continue;  // heads not in use
    EXPECT_EQ(grads[i].defined(), is_trained(spec.kind) && !spec.cancelled) << spec.name;
  }
}

TEST_P(EveryNetwork, GivesTheSameValuesChannelsLast) {
  const auto network = make_network(options_, 1);
  const at::Tensor image = image_for(*network, 1);
  const at::Tensor before = network->forward(image)[0];
  network->parameters().to(at::MemoryFormat::ChannelsLast3d);
  EXPECT_TRUE(at::allclose(before, network->forward(image)[0], 1e-4, 1e-4));
}

TEST_P(EveryNetwork, ComputesInHalfPrecisionOrSaysThatItCannot) {
  const auto network = make_network(options_, 1);
  const at::Tensor image = image_for(*network, 2);
  const at::Tensor whole = network->forward(image)[0];
  network->parameters().set_compute_type(at::kBFloat16);
  if (scripted_) {
    EXPECT_THROW(network->forward(image), Error);
    return;
  }
  const at::Tensor half = network->forward(image)[0];
  EXPECT_EQ(half.scalar_type(), at::kFloat);
  // Eight bits, through forty norms of few voxels each: near, not close.
  EXPECT_LT((half - whole).norm().item<double>(), 0.3 * whole.norm().item<double>());
  network->forward(image, {.training = true})[0].pow(2).mean().backward();
  network->parameters().collect_grads();
  for (const Parameter& p : network->parameters().all()) {
    if (!p.grad.defined()) continue;
    EXPECT_EQ(p.grad.scalar_type(), at::kFloat) << p.name();
    EXPECT_TRUE(p.grad.isfinite().all().item<bool>()) << p.name();
  }
}

TEST_P(EveryNetwork, LearnsOnePatchByHeart) {
  const auto network = make_network(options_, 1);
  const at::Tensor image = image_for(*network, 1);
  std::vector<at::Tensor> leaves;
  for (const Parameter& parameter : network->parameters().all())
    if (is_trained(parameter.spec.kind) && !parameter.spec.cancelled) leaves.push_back(parameter.value);
  torch::optim::Adam adam(leaves, torch::optim::AdamOptions(0.02));
  // Something that a few channels can say: positive, as a dose is.
  const at::Tensor target = (at::avg_pool3d(image, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}).sum(1, true) + 1).relu();
  double first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    adam.zero_grad();
    const at::Tensor loss = (network->forward(image, {.training = true})[0] - target).pow(2).mean();
    loss.backward();
    adam.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.3 * first) << first;
}

std::vector<std::string> names_of_networks() {
  std::vector<std::string> names;
  for (const NetworkEntry& entry : all_networks()) names.push_back(entry.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Networks, EveryNetwork, testing::ValuesIn(names_of_networks()),
                         [](const auto& one) { return one.param; });

struct KnownCost {
  const char* network;
  int64_t in, parameters, side;
  double gmac;  // of one patch of that side, as counted on the originals
  std::function<void(ModelOptions&)> change{};
};

const std::vector<KnownCost>& known_costs() {
  static const std::vector<KnownCost> costs{
      {"mednext", 1, 5550882, 112, 85},
      {"mednext", 1, 5980514, 112, 111, [](ModelOptions& o) { o.mednext_kernel = 5; }},
      {"mednext", 1, 5550882 + 964, 112, 85, [](ModelOptions& o) { o.deep_supervision = true; }},
      {"mednext", 1, 10526274, 112, 111, [](ModelOptions& o) { o.mednext_size = "B"; }},
      {"mednext", 1, 17548930, 112, 163, [](ModelOptions& o) { o.mednext_size = "M"; }},
      {"mednext", 1, 61779234, 112, 331, [](ModelOptions& o) { o.mednext_size = "L"; }},
      {"rsunet", 1, 2647267, 112, 250.3},  // 0.3 of it the interpolation, which is no layer there
      {"openkbp_unet", 11, 116975361, 128, 107.6},
      {"cascade_unet", 9, 32354402, 128, 835}};
  return costs;
}

TEST(Networks, HaveTheParametersAndTheWorkOfTheOriginals) {
  for (const KnownCost& known : known_costs()) {
    ModelOptions options;
    options.architecture = known.network;
    options.in_channels = known.in;
    options.out_channels = 1;
    if (known.change) known.change(options);
    const auto network = make_network(options, 1);
    EXPECT_EQ(network->parameters().count(), known.parameters) << known.network;
    const double gmac = network->gmac({known.side, known.side, known.side});
    EXPECT_NEAR(gmac, known.gmac, 0.51) << known.network;
  }
}

}  // namespace
}  // namespace vox
