#include "ops/feature.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "ops/checkpoint.h"

namespace vox::ops {
namespace {

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

struct Block {
  at::Tensor weight = leaf({4, 3, 3, 3, 3}), bias = leaf({4}), scale = leaf({4}), shift = leaf({4});
  Epilogue epilogue() const {
    Epilogue result;
    result.norm = {NormKind::kInstance, &scale, &shift};
    result.activation.kind = Activation::kLeakyRelu;
    return result;
  }
  ConvLayer layer() const { return {weight, bias, {}}; }
  at::Tensor in_torch(const at::Tensor& input) const {
    const at::Tensor raw = at::conv3d(input, weight, bias, at::IntArrayRef{1, 1, 1}, at::IntArrayRef{1, 1, 1});
    return at::leaky_relu(at::instance_norm(raw, scale, shift, {}, {}, true, 0.1, 1e-5, false), 0.01);
  }
};

TEST(Feature, ConvolutionNormAndActivationAreTorchs) {
  torch::manual_seed(1);
  const Block block;
  const at::Tensor input = leaf({2, 3, 5, 6, 7}), weights = at::randn({2, 4, 5, 6, 7});
  const at::Tensor ours = conv(Feature::plain(input), block.layer(), block.epilogue()).materialize();
  const at::Tensor theirs = block.in_torch(input);
  EXPECT_LT((ours - theirs).abs().max().item<float>(), 1e-5);
  const auto leaves = std::vector<at::Tensor>{input, block.weight, block.scale, block.shift};
  const auto our_grads = torch::autograd::grad({(ours * weights).sum()}, leaves);
  const auto their_grads = torch::autograd::grad({(theirs * weights).sum()}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_TRUE(at::allclose(our_grads[i], their_grads[i], 1e-4, 1e-4)) << i;
  }
}

// torch's own bfloat16 weight gradient of this shape contains whatever lay in its scratch memory.
TEST(Feature, HalfPrecisionGradientsOnTheCpuAreThoseOfTheRoundedValues) {
  torch::manual_seed(5);
  for (int trial = 0; trial < 20; ++trial) {
    const at::Tensor input = at::randn({1, 32, 2, 2, 2}).to(at::kBFloat16).set_requires_grad(true);
    const at::Tensor weight = at::randn({16, 32, 3, 3, 3}).to(at::kBFloat16).set_requires_grad(true);
    const at::Tensor input32 = input.detach().to(at::kFloat).set_requires_grad(true);
    const at::Tensor weight32 = weight.detach().to(at::kFloat).set_requires_grad(true);
    for (const int64_t size : {1024, 16384, 262144}) at::full({size}, NAN);  // freed at once, for others to find
    const at::Tensor ours = conv(Feature::plain(input), {weight, {}, {}}).materialize();
    EXPECT_EQ(ours.scalar_type(), at::kBFloat16);
    ours.sum().backward();
    at::conv3d(input32, weight32, {}, at::IntArrayRef{1, 1, 1}, at::IntArrayRef{1, 1, 1}).sum().backward();
    EXPECT_TRUE(at::allclose(weight.grad().to(at::kFloat), weight32.grad(), 0.01, 0.01));
    EXPECT_TRUE(at::allclose(input.grad().to(at::kFloat), input32.grad(), 0.01, 0.1));
  }
}

TEST(Feature, ABiasBeforeAnInstanceNormHasNoGradient) {
  torch::manual_seed(2);
  const Block block;
  conv(Feature::plain(at::randn({1, 3, 4, 4, 4})), block.layer(), block.epilogue()).materialize().sum().backward();
  EXPECT_FALSE(block.bias.grad().defined());
  EXPECT_TRUE(block.weight.grad().defined());
}

TEST(Feature, TwoConsumersShareOneMaterialization) {
  torch::manual_seed(3);
  const Block block;
  const at::Tensor input = at::randn({1, 3, 4, 4, 4});
  const Feature feature = conv(Feature::plain(input), block.layer(), block.epilogue()), copy = feature;
  EXPECT_TRUE(feature.materialize().is_same(copy.materialize()));
  const Feature both = Feature::concat(feature, copy);
  EXPECT_TRUE(both.materialize().is_same(both.materialize()));
  const at::Tensor weights = at::randn({1, 8, 4, 4, 4});
  const auto ours = torch::autograd::grad({(both.materialize() * weights).sum()}, {block.weight})[0];
  const at::Tensor summed = weights.narrow(1, 0, 4) + weights.narrow(1, 4, 4);
  const auto theirs = torch::autograd::grad({(block.in_torch(input) * summed).sum()}, {block.weight})[0];
  EXPECT_TRUE(at::allclose(ours, theirs, 1e-4, 1e-4));
}

TEST(Feature, DropoutFollowsTheSampleNotTheBatch) {
  const Dropout whole{0.3, 7, 10, 2}, later{0.3, 7, 12, 2};
  const at::Tensor four = dropout_mask(whole, at::empty({4, 1000, 1, 1, 1})),
                   two = dropout_mask(later, at::empty({2, 1000, 1, 1, 1}));
  EXPECT_TRUE(at::equal(four.narrow(0, 2, 2), two));
  EXPECT_NEAR((four == 0).to(at::kFloat).mean().item<float>(), 0.3, 0.03);  // three deviations of 4000 draws: 0.022
  EXPECT_NEAR(four.max().item<float>(), 1 / 0.7, 1e-6);
  EXPECT_FALSE(at::equal(four, dropout_mask({0.3, 7, 10, 3}, four)));
}

TEST(Checkpoint, GivesTheGradientsOfThePlainSegment) {
  torch::manual_seed(4);
  const Block block;
  const at::Tensor input = leaf({2, 3, 5, 5, 5}), other = at::randn({2, 4, 5, 5, 5});
  int runs = 0;
  const Segment segment = [&](const std::vector<at::Tensor>& inputs) {
    ++runs;
    return std::vector<at::Tensor>{conv(Feature::plain(inputs[0]), block.layer(), block.epilogue()).materialize() *
                                   inputs[1]};
  };
  const auto leaves = std::vector<at::Tensor>{input, block.weight, block.scale, block.shift};
  const auto plain = torch::autograd::grad({segment({input, other})[0].pow(2).sum()}, leaves);
  const auto params = std::vector<at::Tensor>{block.weight, block.bias, block.scale, block.shift};
  const at::Tensor output = checkpoint(segment, {input, other}, params)[0];
  EXPECT_EQ(runs, 2);
  const auto recomputed = torch::autograd::grad({output.pow(2).sum()}, leaves);
  EXPECT_EQ(runs, 3);
  for (size_t i = 0; i < leaves.size(); ++i) EXPECT_TRUE(at::equal(plain[i], recomputed[i])) << i;
}

}  // namespace
}  // namespace vox::ops
