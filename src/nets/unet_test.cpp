#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "nets/registry.h"
#include "nets/weights.h"

namespace vox {
namespace {

ModelOptions small() {
  ModelOptions options;
  options.in_channels = 2;
  options.out_channels = 3;
  options.filters = {4, 6, 8};
  return options;
}

std::vector<at::Tensor> grads_of(const ModelOptions& options, const at::Tensor& image) {
  const auto network = make_network(options, 5);
  at::Tensor sum = at::zeros({});
  for (const at::Tensor& head : network->forward(image, {.training = true, .seed = 1})) sum = sum + head.pow(2).mean();
  sum.backward();
  network->parameters().collect_grads();
  std::vector<at::Tensor> grads;
  for (const Parameter& p : network->parameters().all()) grads.push_back(p.grad);
  return grads;
}

TEST(Networks, AnUnknownNameNamesTheNearest) {
  ModelOptions options = small();
  options.architecture = "unett";
  try {
    make_network(options, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("Did you mean unet?"));
  }
}

TEST(UNet, TheErrorNamesTheNearestSizes) {
  const auto network = make_network(small(), 1);
  EXPECT_EQ(network->divisor(), (Extent3{4, 4, 4}));
  try {
    network->require_divisible({30, 32, 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("28x32x4 and 32x32x4"));
  }
}

// 31 196 399 parameters is what the original has with six stages, 1 channel in and 3 out.
TEST(UNet, HasTheOriginalsParameters) {
  ModelOptions options;
  options.in_channels = 1;
  options.out_channels = 3;
  options.filters = {32, 64, 128, 256, 320, 320};
  const auto network = make_network(options, 1);
  EXPECT_EQ(network->parameters().count(), 31196399);
  EXPECT_NE(network->parameters().find("encoder.stages.5.0.convs.1.norm.bias"), nullptr);
  EXPECT_EQ(network->parameters().find("decoder.transpconvs.0.weight")->master.sizes(),
            at::IntArrayRef({320, 320, 2, 2, 2}));
  EXPECT_EQ(network->parameters().find("decoder.seg_layers.4.weight")->master.sizes(),
            at::IntArrayRef({3, 32, 1, 1, 1}));
}

TEST(UNet, WeightsAreHesAndFollowTheSeedAlone) {
  const auto a = make_network(small(), 1), b = make_network(small(), 1), c = make_network(small(), 2);
  const std::string name = "encoder.stages.2.0.convs.1.conv.weight";  // 8 x 8 x 27 = 1728 numbers
  const at::Tensor weight = a->parameters().find(name)->master.detach();
  EXPECT_TRUE(at::equal(weight, b->parameters().find(name)->master));
  EXPECT_FALSE(at::equal(weight, c->parameters().find(name)->master));
  const double expected = std::sqrt(2.0 / (1 + 1e-4) / (8 * 27));
  EXPECT_NEAR(weight.std().item<double>(), expected, 4 * expected / std::sqrt(2 * 1728));
  EXPECT_NEAR(weight.mean().item<double>(), 0, 4 * expected / std::sqrt(1728));
}

TEST(UNet, DeepSupervisionGivesAHeadPerStageFinestFirst) {
  ModelOptions options = small();
  options.deep_supervision = true;
  const auto network = make_network(options, 1);
  const at::Tensor image = at::randn({1, 2, 8, 8, 8});
  const auto heads = network->forward(image, {.training = true});
  ASSERT_EQ(heads.size(), 2u);
  EXPECT_EQ(heads[0].size(2), 8);
  EXPECT_EQ(heads[1].size(2), 4);
  EXPECT_EQ(network->forward(image).size(), 1u);
}

TEST(UNet, AStrideOfTheFirstStageCoarsensTheWorkAndNotTheOutputs) {
  ModelOptions options = small();
  options.deep_supervision = true;
  const double fine = make_network(options, 1)->gmac({16, 16, 16});
  options.strides = {{2, 2, 2}, {2, 2, 2}, {2, 2, 2}};
  const auto network = make_network(options, 1);
  EXPECT_EQ(network->divisor(), (Extent3{8, 8, 8}));
  const auto heads = network->forward(at::randn({1, 2, 16, 16, 16}), {.training = true});
  ASSERT_EQ(heads.size(), 2u);
  EXPECT_EQ(heads[0].sizes(), at::IntArrayRef({1, 3, 16, 16, 16}));
  EXPECT_EQ(heads[1].sizes(), at::IntArrayRef({1, 3, 8, 8, 8}));
  EXPECT_LT(network->gmac({16, 16, 16}), fine / 6);
}

TEST(UNet, CheckpointingGivesEqualGradients) {
  ModelOptions options = small();
  options.deep_supervision = true;
  options.dropout = 0.2;
  const at::Tensor image = at::randn({2, 2, 8, 8, 8});
  const auto plain = grads_of(options, image);
  options.use_checkpoint = true;
  const auto recomputed = grads_of(options, image);
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(plain[i].defined(), recomputed[i].defined()) << i;
    if (!plain[i].defined()) continue;
    EXPECT_TRUE(at::allclose(plain[i], recomputed[i], 1e-5, 1e-7)) << i;
  }
}

TEST(UNet, OnlyCancelledBiasesHaveNoGradient) {
  ModelOptions options = small();
  options.deep_supervision = true;
  const auto network = make_network(options, 1);
  const auto grads = grads_of(options, at::randn({1, 2, 8, 8, 8}));
  for (size_t i = 0; i < grads.size(); ++i) {
    const ParameterSpec& spec = network->parameters().all()[i].spec;
    EXPECT_EQ(grads[i].defined(), !spec.cancelled) << spec.name;
  }
}

TEST(UNet, ChannelsLastWeightsGiveTheSameValues) {
  const at::Tensor image = at::randn({1, 2, 8, 8, 8});
  const auto network = make_network(small(), 1);
  const at::Tensor before = network->forward(image)[0];
  network->parameters().to(at::MemoryFormat::ChannelsLast3d);
  EXPECT_TRUE(network->parameters().all()[0].master.is_contiguous(at::MemoryFormat::ChannelsLast3d));
  EXPECT_TRUE(at::allclose(before, network->forward(image)[0], 1e-4, 1e-4));
}

TEST(Parameters, HalfPrecisionKeepsMastersGradientsHeadsAndNormsInFloat32) {
  const auto network = make_network(small(), 1);
  ParameterSet& parameters = network->parameters();
  parameters.set_compute_type(at::kBFloat16);
  const at::Tensor image = at::randn({1, 2, 8, 8, 8});
  for (int pass = 0; pass < 2; ++pass) {
    network->forward(image, {.training = true})[0].pow(2).mean().backward();
    parameters.collect_grads();
  }
  const Parameter& conv = *parameters.find("encoder.stages.0.0.convs.1.conv.weight");
  EXPECT_EQ(conv.value.scalar_type(), at::kBFloat16);
  EXPECT_EQ(conv.master.scalar_type(), at::kFloat);
  EXPECT_EQ(conv.grad.scalar_type(), at::kFloat);
  EXPECT_EQ(parameters.find("decoder.seg_layers.1.weight")->value.scalar_type(), at::kFloat);
  EXPECT_EQ(parameters.find("encoder.stages.0.0.convs.1.norm.weight")->value.scalar_type(), at::kFloat);
  const at::Tensor twice = conv.grad.clone();
  parameters.zero_grads();
  network->forward(image, {.training = true})[0].pow(2).mean().backward();
  parameters.collect_grads();
  EXPECT_TRUE(at::allclose(twice, 2 * parameters.find(conv.name())->grad));  // sums are float32, hence exact doubling
}

class SafetensorsTest : public testing::Test {
 protected:
  fs::path path_ = fs::temp_directory_path() / concat("voxloom_safetensors_", ::getpid());
  ~SafetensorsTest() override { fs::remove(path_); }
};

TEST_F(SafetensorsTest, WeightsAndOptionsComeBack) {
  ModelOptions options = small();
  options.strides = {{1, 1, 1}, {1, 2, 2}, {2, 2, 2}};
  const auto network = make_network(options, 1);
  std::vector<at::Tensor> kept;
  std::vector<TensorToStore> stored;
  for (const Parameter& p : network->parameters().all()) kept.push_back(p.master.detach());
  for (size_t i = 0; i < kept.size(); ++i) {
    stored.push_back(tensor_to_store(network->parameters().all()[i].name(), kept[i]));
  }
  write_safetensors(path_, stored, describe(options));
  const SafetensorsFile file(path_);
  const ModelOptions read = model_options(file.metadata());
  EXPECT_EQ(read.filters, options.filters);
  EXPECT_EQ(read.strides, options.strides);
  const auto other = make_network(read, 2);
  load_weights(*other, file);
  const at::Tensor image = at::randn({1, 2, 4, 8, 8});
  EXPECT_TRUE(at::equal(network->forward(image)[0], other->forward(image)[0]));
}

TEST_F(SafetensorsTest, ACutFileIsNoticedAtEveryLength) {
  const float values[3] = {1, 2, 3};
  write_safetensors(path_, {{"a", "F32", {3}, std::as_bytes(std::span(values))}}, {{"key", "value"}});
  const std::string whole = read_file(path_);
  EXPECT_EQ(SafetensorsFile(path_).metadata().at("key"), "value");
  for (size_t length = 0; length < whole.size(); ++length) {
    std::ofstream(path_, std::ios::binary) << whole.substr(0, length);
    EXPECT_THROW(SafetensorsFile{path_}, Error) << length;
  }
  std::ofstream(path_, std::ios::binary) << whole << 'x';
  EXPECT_THROW(SafetensorsFile{path_}, Error);
}

TEST_F(SafetensorsTest, WeightsOfAnotherNetworkAreRefusedByName) {
  const auto network = make_network(small(), 1);
  TensorMap weights;
  for (const Parameter& p : network->parameters().all()) weights[p.name()] = p.master.detach();
  weights["decoder.encoder.stages.0.0.convs.0.conv.weight"] = at::zeros({1});  // a second copy: passed over
  EXPECT_NO_THROW(load_weights(*network, weights));
  weights["encoder.stages.0.0.convs.0.conv.weight"] = at::zeros({1});
  EXPECT_THROW(load_weights(*network, weights), Error);
  weights.erase("encoder.stages.0.0.convs.0.conv.weight");
  EXPECT_THROW(load_weights(*network, weights), Error);
  const LoadReport report = load_weights(*network, weights, Missing::kKeep);
  EXPECT_EQ(report.missing.size(), 1u);
  EXPECT_TRUE(partial_note(report, *network, "w").starts_with("w: not in the file, drawn afresh: 1 of the network's "));
  EXPECT_EQ(partial_note({}, *network, "w"), "");
}

}  // namespace
}  // namespace vox
