#include "kernels/norm_cuda.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <random>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "ops/norm_cuda_cases.h"

namespace vox::cuda::testing_norm {
namespace {

at::Tensor leaf(const at::Tensor& values) {
  return values.defined() ? values.to(at::kDouble).detach().clone().set_requires_grad(true) : at::Tensor();
}

void compare(const Case& c) {
  SCOPED_TRACE(testing::Message() << c);
  const Layer layer(c);
  const at::Tensor x = leaf(truth(layer.x)), gamma = leaf(layer.gamma), beta = leaf(layer.beta);
  const at::Tensor residual = c.residual ? leaf(truth(layer.residual)) : at::Tensor(), slopes = leaf(layer.slopes);
  at::Tensor mean = layer.running_mean.to(at::kDouble), variance = layer.running_variance.to(at::kDouble);
  at::Tensor z = normed(c, x, gamma, beta, mean, variance);
  if (c.residual) z = z + residual;
  // Which side of a kink a value lies on is beyond float32 where it is this near.
  const at::Tensor near = (z.detach().abs() < 1e-4).permute({0, 2, 3, 4, 1});
  if (c.act == ActKind::kLeakyRelu || c.act == ActKind::kPrelu) layer.dy.masked_fill_(near, 0);
  const at::Tensor y = activated(c, z, slopes);
  y.backward(truth(layer.dy));
  layer.forward();
  layer.backward();
  const double rounding = c.type == at::kFloat ? 1e-5 : c.type == at::kHalf ? 6e-4 : 4e-3, summed = 1e-5;
  EXPECT_LT(error(truth(layer.y), y.detach()), rounding);
  EXPECT_LT(error(truth(layer.dx), x.grad()), rounding);
  if (c.residual) EXPECT_LT(error(truth(layer.dresidual), residual.grad()), rounding);
  // Sums of terms of both signs: the error is measured by their size, as the sum may be near 0.
  const double terms = std::sqrt(static_cast<double>(c.shape.count()));
  if (c.affine) {
    const double size = layer.dy.to(at::kDouble).norm().item<double>();
    EXPECT_LT((layer.dbeta.to(at::kDouble) - beta.grad()).norm().item<double>(), summed * size);
    EXPECT_LT((layer.dgamma.to(at::kDouble) - gamma.grad()).norm().item<double>(), summed * size);
  }
  if (c.act == ActKind::kPrelu)
    EXPECT_LT((layer.dslope.to(at::kDouble) - slopes.grad()).norm().item<double>(), summed * 2 * terms);
  if (c.over == NormOver::kBatch && !c.frozen) {
    EXPECT_LT(error(layer.running_mean, mean), summed);
    EXPECT_LT(error(layer.running_variance, variance), summed);
  }
}

class Random {
 public:
  Random() {
    seed = drawn_seed();
    engine_.seed(seed);
    torch::manual_seed(seed);
  }
  int64_t operator()(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  bool coin() { return (*this)(0, 1) == 1; }
  unsigned seed = 0;

 private:
  std::mt19937 engine_;
};

constexpr ActKind kActs[] = {ActKind::kNone, ActKind::kLeakyRelu, ActKind::kPrelu,
                             ActKind::kGelu, ActKind::kElu,       ActKind::kSilu};

Case random_case(Random& random) {
  constexpr int64_t kChannels[] = {1, 2, 3, 5, 8, 12, 13, 16, 24, 32, 40, 48, 64, 96, 128, 320, 333, 512, 1000, 1024};
  Case c;
  c.shape.c = kChannels[random(0, 19)];
  const int64_t longest = c.shape.c < 100 ? side(24) : 9;
  // At least 8 voxels: of two, a norm leaves a gradient of nothing but rounding.
  c.shape = {random(1, 7), random(1, longest), random(1, longest), random(8, longest), c.shape.c};
  c.type = random.coin() ? at::kBFloat16 : random.coin() ? at::kHalf : at::kFloat;
  c.residual = random.coin(), c.affine = random.coin(), c.slope_per_channel = random.coin();
  c.aligned = random(0, 7) != 0;
  return c;
}

TEST(NormCuda, ForwardAndBackwardAreTorchsInDouble) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  Random random;
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << random.seed);
  for (const NormOver over : {NormOver::kInstance, NormOver::kBatch, NormOver::kGroup}) {
    for (const ActKind act : kActs) {
      for (int trial = 0; trial < cases(8); ++trial) {
        Case c = random_case(random);
        c.over = over, c.act = act;
        c.frozen = over == NormOver::kBatch && trial == 0;
        while (over == NormOver::kGroup && (c.groups = int(random(1, c.shape.c)), c.shape.c % c.groups != 0)) {
        }
        compare(c);
      }
    }
  }
}

TEST(NormCuda, LargeVolumesAndManyRows) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  torch::manual_seed(1);
  compare({.shape = {2, 64, 65, 67, 32}, .act = ActKind::kLeakyRelu, .residual = true});
  compare({.shape = {3, 96, 40, 64, 24}, .over = NormOver::kBatch, .act = ActKind::kPrelu});
  compare({.shape = {1, 100, 100, 101, 20}, .type = at::kFloat, .over = NormOver::kGroup, .groups = 5});
}

// What has no norm: the activation alone, its gradient, and the sum of it that a bias wants.
TEST(NormCuda, AnActivationWithoutANorm) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  torch::manual_seed(2);
  for (const ActKind act : kActs) {
    Case c{.shape = {2, 5, 6, 7, 40}, .type = at::kFloat, .act = act, .affine = false};
    const Layer layer(c);
    const at::Tensor x = leaf(truth(layer.x)), slopes = leaf(layer.slopes);
    const at::Tensor y = activated(c, x, slopes);
    y.backward(truth(layer.dy));
    apply_norm(layer.x.data_ptr(), nullptr, layer.y.data_ptr(), Scalar::kFloat32, c.shape, nullptr, nullptr,
               layer.act(), nullptr);
    NormGradInput input = layer.grad_input();
    input.state = {};
    norm_grad_sums(input, Layer::floats_of(layer.grad_partials), nullptr);
    finish_norm_grad(Layer::floats_of(layer.grad_partials), norm_grad_rows(c.shape), input, {}, false,
                     {nullptr, Layer::floats_of(layer.dbeta), nullptr, Layer::floats_of(layer.coefficients)}, nullptr);
    norm_grad_apply(input, Layer::floats_of(layer.coefficients), layer.dx.data_ptr(), nullptr, nullptr);
    norm_grad_apply(input, nullptr, layer.dresidual.data_ptr(), nullptr, nullptr);
    EXPECT_LT(error(truth(layer.y), y.detach()), 1e-5);
    EXPECT_LT(error(truth(layer.dx), x.grad()), 1e-5);
    EXPECT_TRUE(at::equal(layer.dx, layer.dresidual));
    EXPECT_LT(error(layer.dbeta, x.grad().sum({0, 2, 3, 4})), 1e-4);
  }
}

TEST(NormCuda, GradientsMayOverwriteWhatTheyCameFrom) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  torch::manual_seed(3);
  const Layer layer({.shape = {2, 9, 10, 11, 32}, .act = ActKind::kLeakyRelu});
  layer.forward();
  layer.backward();
  float* const coefficients = Layer::floats_of(layer.coefficients);
  norm_grad_apply(layer.grad_input(), coefficients, layer.dy.data_ptr(), nullptr, nullptr);
  EXPECT_TRUE(at::equal(layer.dy, layer.dx));
}

// One pass of float32 squares would leave nothing of a variance of 1 beside a mean of 1000.
TEST(NormCuda, AMeanFarFromZeroLeavesTheVarianceRight) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  torch::manual_seed(4);
  for (const int64_t channels : {13, 32}) {
    Layer layer({.shape = {2, 64, 64, 64, channels}, .type = at::kFloat});
    layer.x = filled(layer.on.shape, at::kFloat) + 1000;
    layer.forward();
    const at::Tensor x = truth(layer.x);
    const at::Tensor variance = x.var({2, 3, 4}, false);
    EXPECT_LT(error(layer.state[1], (variance + 1e-5).rsqrt()), 1e-5);
    EXPECT_LT((layer.state[0].to(at::kDouble) - x.mean({2, 3, 4})).abs().max().item<double>(), 1e-4);
  }
}

TEST(NormCuda, SumsOfAllSamplesFromMoments) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  torch::manual_seed(6);
  for (const int64_t channels : {13, 32, 320}) {
    const Layer layer({.shape = {3, 20, 21, 22, channels}});
    layer.forward();
    const at::Tensor sums = poisoned({channels});
    sums_from_moments(Layer::floats_of(layer.moment_partials), moment_rows(layer.on.shape), layer.on.shape,
                      Layer::floats_of(sums), nullptr);
    EXPECT_LT(error(sums, truth(layer.x).sum({0, 2, 3, 4})), 1e-5);
  }
}

TEST(NormCuda, OneVoxelIsItsOwnMean) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const Layer layer({.shape = {3, 1, 1, 1, 17}, .type = at::kFloat});
  layer.forward();
  layer.backward();
  EXPECT_LT((layer.y - layer.beta).abs().max().item<float>(), 1e-3);
  EXPECT_LT(layer.dx.abs().max().item<float>(), 1e-2);
}

TEST(NormCuda, ValuesThatAreNotFiniteReachTheSums) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  Random random;
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << random.seed);
  for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    for (const bool first : {true, false}) {
      const Layer layer({.shape = {2, 12, 13, 14, 32}, .act = ActKind::kLeakyRelu});
      const int64_t voxel = first ? 0 : random(1, 12 * 13 * 14 - 1);
      layer.x.view({2, -1, 32})[1][voxel][7].fill_(bad);
      layer.dy.view({2, -1, 32})[1][voxel][9].fill_(bad);
      layer.forward();
      layer.backward();
      EXPECT_FALSE(std::isfinite(layer.state[2][1][7].item<float>()));
      EXPECT_FALSE(std::isfinite(layer.dgamma[7].item<float>()));
      EXPECT_FALSE(std::isfinite(layer.dbeta[9].item<float>()));
      EXPECT_TRUE(std::isfinite(layer.state[2][0][7].item<float>()));
      EXPECT_TRUE(std::isfinite(layer.dbeta[8].item<float>()));
    }
  }
}

TEST(NormCuda, AHundredAndFiftyRunsGiveTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  torch::manual_seed(5);
  for (const int64_t channels : {24, 32}) {
    const Layer layer({.shape = {2, side(48), side(48), side(48), channels}, .act = ActKind::kPrelu, .residual = true});
    std::vector<at::Tensor> outputs{layer.state, layer.coefficients, layer.dgamma, layer.dbeta, layer.dslope, layer.dx},
        first;
    for (int run = 0; run < launches(); ++run) {
      layer.forward();
      layer.backward();
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (run == 0) first.push_back(outputs[i].clone());
        ASSERT_TRUE(at::equal(outputs[i], first[i])) << "run " << run << " output " << i;
      }
    }
  }
}

// Each sample's statistics are the same bits in whatever batch it is.
TEST(NormCuda, StatisticsOfASampleDoNotDependOnTheBatch) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  Layer batch({.shape = {3, 20, 21, 22, 32}}), alone({.shape = {1, 20, 21, 22, 32}});
  alone.x = batch.x.slice(0, 2, 3).contiguous();
  alone.gamma = batch.gamma, alone.beta = batch.beta;
  batch.forward();
  alone.forward();
  EXPECT_TRUE(at::equal(alone.state.select(1, 0), batch.state.select(1, 2)));
}

}  // namespace
}  // namespace vox::cuda::testing_norm
