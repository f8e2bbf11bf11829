// The fused path of a GPU, layer by layer and as a small U-Net, against torch in float64 with the same rounded weights.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <random>

#include "base/drawn_seed.h"
#include "kernels/hopper/conv3d.h"
#include "ops/feature.h"
#include "ops/fused.h"
#include "ops/kernel_choice.h"

namespace vox::ops {
namespace {

using at::Tensor;

double norm_of(const Tensor& values) {
  return values.to(at::kCPU, at::kDouble).norm().item<double>();
}

// `scale`: what the error is also small against, where the truth itself may be nearly nothing.
double relative_error(const Tensor& value, const Tensor& truth, double scale = 0) {
  return norm_of(value.to(at::kDouble) - truth) / std::max({norm_of(truth), scale, 1e-12});
}

struct Case {
  NormKind norm;
  int64_t filters;
  at::ScalarType type;
  double slope;  // of the leaky ReLU; 1: none
};

// A parameter twice: as the engine reads it, and as the truth does.
struct Twin {
  Tensor ours, truth;
};

Twin twin(const Tensor& values, at::ScalarType type) {
  Tensor ours = values.to(at::kCUDA, type);
  if (ours.dim() == 5) ours = ours.contiguous(at::MemoryFormat::ChannelsLast3d);
  return {ours.set_requires_grad(true), ours.detach().to(at::kDouble).set_requires_grad(true)};
}

struct LayerTwin {
  Twin weight, gamma, beta;
  LayerTwin(int64_t in, int64_t out, at::ScalarType type)
      : weight(twin(at::randn({out, in, 3, 3, 3}) / std::sqrt(27.0 * static_cast<double>(in)), type)),
        gamma(twin(1 + 0.3 * at::randn({out}), at::kFloat)),
        beta(twin(0.3 * at::randn({out}), at::kFloat)) {}
};

Feature run(const LayerTwin& layer, const Feature& input, const Case& with, const Extent3& stride = {1, 1, 1}) {
  static const Tensor none;
  Epilogue epilogue;
  epilogue.norm = {
      .kind = with.norm, .scale = &layer.gamma.ours, .shift = &layer.beta.ours, .groups = 4, .training = true};
  if (with.slope != 1) epilogue.activation = {.kind = Activation::kLeakyRelu, .negative_slope = with.slope};
  return conv(input, {layer.weight.ours, none, {{3, 3, 3}, stride}}, epilogue);
}

Tensor norm_truth(const Tensor& raw, const LayerTwin& layer, NormKind norm) {
  if (norm == NormKind::kGroup) return at::group_norm(raw, 4, layer.gamma.truth, layer.beta.truth, 1e-5);
  if (norm == NormKind::kBatch)
    return at::batch_norm(raw, layer.gamma.truth, layer.beta.truth, {}, {}, true, 0.1, 1e-5, false);
  return at::instance_norm(raw, layer.gamma.truth, layer.beta.truth, {}, {}, true, 0.1, 1e-5, false);
}

Tensor run_truth(const LayerTwin& layer, const Tensor& input, const Case& with, int64_t stride = 1) {
  const Tensor raw = at::conv3d(input, layer.weight.truth, {}, stride, 1);
  return at::leaky_relu(norm_truth(raw, layer, with.norm), with.slope);
}

class FusedUNet : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  }
  void TearDown() override { set_kernel_arch("auto"); }
};

// Two levels with a skip: the skip has two consumers, one of which reads the raw output and one a materialized one.
void expect_like_truth(const Case& with, uint64_t seed) {
  torch::manual_seed(seed);
  std::mt19937 generator(static_cast<unsigned>(seed));
  const auto even = [&](int low, int high) { return 2 * std::uniform_int_distribution<int64_t>(low, high)(generator); };
  const int64_t n = 1 + static_cast<int64_t>(seed % 3), f = with.filters;
  const int64_t channels = seed % 2 == 0 ? 1 : 3;
  const Tensor image = at::randn({n, channels, even(4, 12), even(8, 20), even(8, 20)}).to(at::kCUDA, with.type);
  const Tensor image_truth = image.to(at::kDouble);
  LayerTwin first(channels, f, with.type), second(f, f, with.type), down(f, 2 * f, with.type), up(2 * f, f, with.type),
      join(2 * f, f, with.type);
  const Twin head = twin(at::randn({2, f, 1, 1, 1}) / std::sqrt(static_cast<double>(f)), at::kFloat);
  const Twin bias = twin(at::randn({2}), at::kFloat);
  const Twin double_weight = twin(at::randn({f, f, 2, 2, 2}) / std::sqrt(static_cast<double>(f)), with.type);
  const Twin double_bias = twin(at::randn({f}), with.type);

  const Feature entered = Feature::plain(image.contiguous(at::MemoryFormat::ChannelsLast3d));
  const Feature skip = run(second, run(first, entered, with), with);
  const Feature below = run(down, skip, with, {2, 2, 2});
  const Feature raised =
      conv_transpose(run(up, below, with), {double_weight.ours, double_bias.ours, {{2, 2, 2}, {2, 2, 2}}});
  const Feature joined = run(join, Feature::concat(raised, skip), with);
  const Tensor logits = conv(joined, {head.ours, bias.ours, {{1, 1, 1}}}).materialize();

  const Tensor skip_t = run_truth(second, run_truth(first, image_truth, with), with);
  const Tensor up_t = run_truth(up, run_truth(down, skip_t, with, 2), with);
  const Tensor raised_t = at::conv_transpose3d(up_t, double_weight.truth, double_bias.truth, 2);
  const Tensor joined_t = run_truth(join, at::cat({raised_t, skip_t}, 1), with);
  const Tensor logits_t = at::conv3d(joined_t, head.truth, bias.truth);

  ASSERT_EQ(logits.scalar_type(), at::kFloat);
  // Rounding moves some values over the kink of the activation, and each such voxel's gradient is wrong as a whole: of
  // a share p of voxels the root of p. Where there is no kink, only rounding itself is left.
  const double rounding = with.type == at::kHalf ? 6e-3 : 4e-2;
  const double bound = with.slope == 1 ? rounding : with.type == at::kHalf ? 0.12 : 0.3;
  EXPECT_LT(relative_error(logits, logits_t), rounding);
  const Tensor direction = at::randn(logits.sizes(), logits.options());
  (logits * direction).sum().backward();
  (logits_t * direction.to(at::kDouble)).sum().backward();
  for (const LayerTwin* layer : {&first, &second, &down, &up, &join}) {
    EXPECT_LT(relative_error(layer->weight.ours.grad(), layer->weight.truth.grad()), bound);
    EXPECT_LT(relative_error(layer->gamma.ours.grad(), layer->gamma.truth.grad()), bound);
    // A shift that a later norm takes away again has next to no gradient.
    EXPECT_LT(relative_error(layer->beta.ours.grad(), layer->beta.truth.grad(), norm_of(layer->gamma.truth.grad())),
              bound);
  }
  const double shift_scale = norm_of(up.gamma.truth.grad());
  EXPECT_LT(relative_error(double_weight.ours.grad(), double_weight.truth.grad()), bound);
  EXPECT_LT(relative_error(double_bias.ours.grad(), double_bias.truth.grad(), shift_scale), bound);
  EXPECT_LT(relative_error(head.ours.grad(), head.truth.grad()), bound);
  EXPECT_LT(relative_error(bias.ours.grad(), bias.truth.grad()), bound);
}

TEST_P(FusedUNet, EqualsFloat64) {
  const uint64_t seed = drawn_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  expect_like_truth(GetParam(), seed);
}

TEST_P(FusedUNet, GenericKernelsEqualFloat64) {
  const uint64_t seed = drawn_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  set_kernel_arch("generic");
  expect_like_truth(GetParam(), seed);
}

// What is expected to be faster with cuDNN is left to it: the first shape is not.
TEST(FilledConvCuda, OfAnImageOfFewChannelsIsTorchsInDouble) {
  if (!torch::cuda::is_available() || !cuda::conv3d_available()) GTEST_SKIP() << "needs a Hopper GPU";
  const unsigned seed = drawn_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  torch::manual_seed(seed);
  std::mt19937 generator(seed);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int64_t>(low, high)(generator); };
  std::vector<std::vector<int64_t>> shapes{{2, 11, 48, 96, 96}};
  for (const int64_t channels : {int64_t{3}, draw(4, 15), int64_t{16}, draw(17, 30), int64_t{31}})
    shapes.push_back({draw(1, 2), channels, draw(24, 40), draw(48, 80), draw(48, 80)});
  for (const std::vector<int64_t>& shape : shapes) {
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(shape));
    const Tensor image = at::randn(shape).to(at::kCUDA, at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast3d);
    const LayerTwin layer(shape[1], &shape == &shapes[0] ? 32 : 32 * draw(1, 2), at::kBFloat16);
    const auto raw = fused::convolve(Feature::plain(image), {layer.weight.ours, {}, {{3, 3, 3}}}, {});
    if (&shape == &shapes[0]) ASSERT_TRUE(raw);
    if (!raw) continue;
    const Tensor truth = at::conv3d(image.to(at::kDouble), layer.weight.truth, {}, 1, 1);
    EXPECT_LT(relative_error(raw->values, truth), 4e-3);
    const Tensor direction = at::randn_like(raw->values);
    raw->values.backward(direction);
    truth.backward(direction.to(at::kDouble));
    EXPECT_LT(relative_error(layer.weight.ours.grad(), layer.weight.truth.grad()), 4e-3);
  }
}

// Of 128 to 128 channels the table expects about the same of both kernels.
TEST(KernelTimingCuda, TimesAShapeOnceAndBothKernelsAreRight) {
  if (!torch::cuda::is_available() || !cuda::conv3d_available()) GTEST_SKIP() << "needs a Hopper GPU";
  torch::manual_seed(3);
  const Case with{NormKind::kInstance, 128, at::kBFloat16, 1};
  const LayerTwin first(128, 128, with.type), second(128, 128, with.type);
  const Tensor image = at::randn({2, 128, 32, 32, 32}).to(at::kCUDA, with.type);
  const Feature entered = Feature::plain(image.contiguous(at::MemoryFormat::ChannelsLast3d));
  const Tensor truth = run_truth(second, run_truth(first, image.to(at::kDouble), with), with);
  const auto error = [&] { return relative_error(run(second, run(first, entered, with), with).materialize(), truth); };
  set_kernel_timing(KernelTiming::kOncePerShape);
  const KernelChoices before = kernel_choices();
  EXPECT_LT(error(), 4e-2);
  KernelChoices found = kernel_choices();
  EXPECT_GT(found.size(), before.size());
  EXPECT_LT(error(), 4e-2);
  EXPECT_EQ(kernel_choices(), found);
  for (auto& [shape, kernel] : found) kernel = kernel == "own" ? "cudnn" : "own";
  adopt_kernel_choices(found);
  EXPECT_LT(error(), 4e-2);
  for (const auto& [shape, kernel] : kernel_choices()) std::printf("%s: not %s\n", shape.c_str(), kernel.c_str());
  set_kernel_timing(KernelTiming::kFixed);
}

INSTANTIATE_TEST_SUITE_P(
    Norms, FusedUNet,
    testing::Values(Case{NormKind::kInstance, 32, at::kBFloat16, 0.01}, Case{NormKind::kInstance, 32, at::kBFloat16, 1},
                    Case{NormKind::kBatch, 32, at::kBFloat16, 1}, Case{NormKind::kGroup, 32, at::kBFloat16, 1},
                    Case{NormKind::kInstance, 20, at::kBFloat16, 1}, Case{NormKind::kInstance, 32, at::kHalf, 1},
                    Case{NormKind::kBatch, 12, at::kHalf, 1}, Case{NormKind::kBatch, 12, at::kHalf, 0.2}));

}  // namespace
}  // namespace vox::ops
