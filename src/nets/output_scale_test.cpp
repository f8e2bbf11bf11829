#include "nets/output_scale.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace vox {
namespace {

TEST(OutputScale, OutputsAreMultipliedAndTheWeightsAreTheSame) {
  ModelOptions options;
  options.in_channels = 1, options.out_channels = 2, options.filters = {4, 8, 8}, options.deep_supervision = true;
  const auto plain = make_network(options, 3);
  options.output_scale = 70;
  const auto scaled = make_network(options, 3);
  const at::Tensor image = at::randn({2, 1, 8, 8, 8});
  const auto expected = plain->forward(image, {.training = true}), outputs = scaled->forward(image, {.training = true});
  ASSERT_EQ(outputs.size(), 2u);
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(at::allclose(outputs[i], expected[i] * 70));
  EXPECT_EQ(scaled->parameters().count(), plain->parameters().count());
  EXPECT_EQ(scaled->divisor(), plain->divisor());
  EXPECT_EQ(scaled->layer_table({8, 8, 8}).layers.size(), plain->layer_table({8, 8, 8}).layers.size());
  outputs[0].sum().backward();
  expected[0].sum().backward();
  scaled->parameters().collect_grads(), plain->parameters().collect_grads();
  for (size_t i = 0; i < plain->parameters().all().size(); ++i) {
    const at::Tensor& grad = plain->parameters().all()[i].grad;
    if (!grad.defined()) continue;
    EXPECT_TRUE(at::allclose(scaled->parameters().all()[i].grad, grad * 70, 1e-3, 1e-3)) << i;
  }
}

}  // namespace
}  // namespace vox
