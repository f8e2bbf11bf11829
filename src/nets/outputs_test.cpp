#include "nets/outputs.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "base/error.h"

namespace vox {
namespace {

ModelOptions two_outputs(double scale) {
  ModelOptions options;
  options.in_channels = 1, options.out_channels = 2, options.filters = {4, 8, 8}, options.deep_supervision = true;
  options.output_scale = scale;
  return options;
}

TEST(OutputScale, OutputsBeginWhereTheyWouldWithoutIt) {
  torch::manual_seed(6);
  const auto plain = make_network(two_outputs(1), 3), scaled = make_network(two_outputs(70), 3);
  const at::Tensor image = at::randn({2, 1, 8, 8, 8});
  const auto expected = plain->forward(image, {.training = true}), outputs = scaled->forward(image, {.training = true});
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(at::allclose(outputs[i], expected[i], 1e-4, 1e-5));
}

TEST(OutputScale, OutputsOfTheSameWeightsAreMultiplied) {
  torch::manual_seed(5);
  const auto plain = make_network(two_outputs(1), 3), scaled = make_network(two_outputs(70), 3);
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < plain->parameters().all().size(); ++i)
      scaled->parameters().all()[i].master.copy_(plain->parameters().all()[i].master);
  }
  const at::Tensor image = at::randn({2, 1, 8, 8, 8});
  const auto expected = plain->forward(image, {.training = true}), outputs = scaled->forward(image, {.training = true});
  ASSERT_EQ(outputs.size(), 2u);
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(at::allclose(outputs[i], expected[i] * 70));
  EXPECT_EQ(scaled->parameters().count(), plain->parameters().count());
  EXPECT_EQ(scaled->divisor(), plain->divisor());
  EXPECT_EQ(scaled->layer_table({8, 8, 8}).layers.size(), plain->layer_table({8, 8, 8}).layers.size());
  const at::Tensor direction = at::randn_like(outputs[0]);  // a plain sum would vanish in the norms
  (outputs[0] * direction).sum().backward();
  (expected[0] * direction).sum().backward();
  double difference = 0, size = 0;
  scaled->parameters().collect_grads(), plain->parameters().collect_grads();
  for (size_t i = 0; i < plain->parameters().all().size(); ++i) {
    const at::Tensor& grad = plain->parameters().all()[i].grad;
    if (!grad.defined()) continue;
    difference += (scaled->parameters().all()[i].grad - grad * 70).pow(2).sum().item<double>();
    size += (grad * 70).pow(2).sum().item<double>();
  }
  EXPECT_GT(size, 0);
  EXPECT_LT(std::sqrt(difference / size), 1e-4);
}

TEST(AddedChannel, IsAddedToEveryOutputBeforeTheScale) {
  torch::manual_seed(7);
  ModelOptions options = two_outputs(70);
  options.in_channels = 3;
  const auto plain = make_network(options, 3);
  options.added_channel = 1;
  const auto corrected = make_network(options, 3);
  const at::Tensor image = at::randn({2, 3, 8, 8, 8}), guess = image.slice(1, 1, 2);
  const auto expected = plain->forward(image, {.training = true});
  const auto outputs = corrected->forward(image, {.training = true});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_TRUE(at::allclose(outputs[0], expected[0] + 70 * guess, 1e-4, 1e-4));
  EXPECT_TRUE(at::allclose(outputs[1], expected[1] + 70 * at::avg_pool3d(guess, 2), 1e-4, 1e-4));
}

TEST(AddedChannel, ThatTheImageDoesNotHaveIsRefused) {
  ModelOptions options = two_outputs(1);
  options.added_channel = 1;
  EXPECT_THROW(make_network(options, 3), Error);
}

}  // namespace
}  // namespace vox
