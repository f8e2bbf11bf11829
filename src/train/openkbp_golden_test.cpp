// The OpenKBP network beside the original in Keras: the same weights give the same outputs, and five steps of Keras's
// Adam the same losses, weights and running statistics.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "losses/loss.h"
#include "nets/network.h"
#include "train/optimizer.h"

namespace vox {
namespace {

constexpr int64_t kSide = 64, kVoxels = kSide * kSide * kSide, kSamples = 2, kMasks = 10;

fs::path golden_folder() {
  const char* given = std::getenv("VOXLOOM_SHARED");
  const fs::path root = fs::path(__FILE__).parent_path().parent_path().parent_path();
  return (given ? fs::path(given) : root.parent_path() / "shared") / "data/openkbp/golden_unet";
}

class OpenKbpGolden : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::is_directory(golden_folder())) GTEST_SKIP() << "the folder of golden values is not here";
    tensors_ = nlohmann::json::parse(read_file(golden_folder() / "manifest.json")).at("tensors");
  }

  static at::Tensor floats(const char* name) {
    const std::string bytes = read_file(golden_folder() / name);
    return at::from_blob(const_cast<char*>(bytes.data()), {static_cast<int64_t>(bytes.size() / sizeof(float))},
                         at::kFloat)
        .clone();
  }

  at::Tensor tensor(const at::Tensor& all, const nlohmann::json& entry) const {
    const auto shape = entry.at("shape").get<std::vector<int64_t>>();
    return all.narrow(0, entry.at("offset_floats").get<int64_t>(), c10::multiply_integers(shape)).view(shape);
  }

  std::unique_ptr<Network> network_before() const {
    ModelOptions options;
    options.architecture = "openkbp_unet";
    options.in_channels = 1 + kMasks;
    options.out_channels = 1;
    options.filters = {2};
    options.dropout = 0;
    auto network = make_network(options, 1);
    const at::Tensor before = floats("weights_before.bin");
    EXPECT_EQ(tensors_.size(), network->parameters().all().size());
    for (const nlohmann::json& entry : tensors_)
      network->parameters().load(entry.at("name").get<std::string>(), tensor(before, entry));
    return network;
  }

  nlohmann::json tensors_;
};

// The formulas of the golden data.
at::Tensor golden_image() {
  at::Tensor image = at::empty({kSamples, 1 + kMasks, kVoxels});
  auto values = image.accessor<float, 3>();
  for (int64_t b = 0; b < kSamples; ++b) {
    for (int64_t v = 0; v < kVoxels; ++v) {
      values[b][0][v] = static_cast<float>((v * 7919 + b * 104729) % 4096);
      for (int64_t r = 0; r < kMasks; ++r) values[b][1 + r][v] = (v / (3 + r) + b) % (11 + r) == 0 ? 1.0f : 0.0f;
    }
  }
  return image.view({kSamples, 1 + kMasks, kSide, kSide, kSide});
}

at::Tensor golden_dose() {
  at::Tensor dose = at::empty({kSamples, kVoxels});
  auto values = dose.accessor<float, 2>();
  for (int64_t b = 0; b < kSamples; ++b)
    for (int64_t v = 0; v < kVoxels; ++v)
      values[b][v] = static_cast<float>(static_cast<double>((v * 31 + b * 17) % 701) * 0.1);
  return dose.view({kSamples, 1, kSide, kSide, kSide});
}

double relative(const at::Tensor& ours, const at::Tensor& theirs) {
  return ((ours - theirs).norm() / theirs.norm().clamp_min(1e-20)).item<double>();
}

TEST_F(OpenKbpGolden, FiveStepsAreThoseOfKeras) {
  const auto network = network_before();
  const at::Tensor image = golden_image();
  const auto evaluate = [&] {
    const at::NoGradGuard no_grad;
    return network->forward(image)[0].flatten();
  };
  EXPECT_LT(relative(evaluate(), floats("eval_output_before.bin")), 1e-5);

  TrainingOptions training;
  training.optimizer = "adam";
  training.betas = {0.5, 0.999};
  training.epsilon = 1e-7;
  training.keras_epsilon = true;
  training.weight_decay = 0;
  training.clip_norm = 0;
  Optimizer optimizer(training, network->parameters(), Precision::k32);
  DataOptions data;
  data.target = "regression";
  LossOptions options;
  options.terms.emplace_back().name = "mae";
  const LossSet loss(options, data, 1);
  const Targets targets{.label = golden_dose(), .mask = {}, .extra = {}};
  for (const double expected :
       {29.54367446899414, 29.531944274902344, 29.520885467529297, 29.510150909423828, 29.499666213989258}) {
    network->parameters().zero_grads();
    const at::Tensor value = loss.compute(network->forward(image, {.training = true}), targets, 0).total;
    EXPECT_NEAR(value.item<double>(), expected, 1e-5 * expected);
    value.backward();
    network->parameters().collect_grads();
    optimizer.set_lr(2e-4);
    optimizer.step();
    network->parameters().settle_statistics(optimizer.found_inf());
  }

  const at::Tensor after = floats("weights_after_5_steps.bin");
  for (const nlohmann::json& entry : tensors_) {
    const auto name = entry.at("name").get<std::string>();
    const at::Tensor difference = network->parameters().find(name)->master.detach() - tensor(after, entry);
    // Adam takes steps of one size whatever the gradient: where it is all rounding, so is the step. Keras and a copy in
    // PyTorch are 1.7e-5 apart, of 1e-3 that five steps cover.
    const double allowed =
        name.find("running") == std::string::npos ? 5e-5 : 1e-4 * tensor(after, entry).abs().max().item<double>();
    EXPECT_LT(difference.abs().max().item<double>(), allowed) << name;
  }
  EXPECT_LT(relative(evaluate(), floats("eval_output_after_5_steps.bin")), 1e-4);
}

}  // namespace
}  // namespace vox
