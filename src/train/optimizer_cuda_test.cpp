// Truth: the loops of the CPU, which optimizer_test.cpp compares with torch's own optimizers.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "base/error.h"
#include "train/optimizer.h"
#include "train/optimizer_update.h"

namespace vox {
namespace {

bool skip() {
  return !torch::cuda::is_available();
}

// Both compute the same operations without contraction, so that nearly always no bit differs; what may is the last
// digit of the norm. A tensor of one element near zero has no relative error worth the name: hence the floor.
double relative(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor a = got.detach().to(at::kCPU, at::kDouble), b = expected.detach().to(at::kCPU, at::kDouble);
  return (a - b).norm().item<double>() / (b.norm().item<double>() + 0.1 * std::sqrt(static_cast<double>(b.numel())));
}

// Sizes around chunks and vectors; some kinds stay float32 in mixed precision.
ParameterSet make_parameters(int64_t seed, const at::Device& device, at::ScalarType type, bool channels_last) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  ParameterSet parameters;
  const auto drawn = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int i = 0; i < 12; ++i) {
    const int64_t in = drawn(1, 40), out = drawn(1, 40), kernel = drawn(1, 3);
    parameters.add({concat(i, ".weight"), ParameterKind::kConvWeight, {out, in, kernel, kernel, kernel}});
    parameters.add({concat(i, ".bias"), ParameterKind::kBias, {out}});
    parameters.add({concat(i, ".scale"), ParameterKind::kNormScale, {out}});
    parameters.add({concat(i, ".mean"), ParameterKind::kRunningMean, {out}});
  }
  torch::manual_seed(static_cast<uint64_t>(seed));
  for (Parameter& p : parameters.all()) parameters.load(p.name(), at::randn(p.spec.shape));
  parameters.to(device);
  if (channels_last) parameters.to(at::MemoryFormat::ChannelsLast3d);
  parameters.set_compute_type(type);
  return parameters;
}

// The first parameter never gets a gradient; one element of another may be bad.
void set_grads(ParameterSet& parameters, uint64_t seed, double scale, double bad) {
  torch::manual_seed(seed);
  for (size_t i = 1; i < parameters.all().size(); ++i) {
    Parameter& p = parameters.all()[i];
    if (!is_trained(p.spec.kind)) continue;
    at::Tensor grad = at::randn(p.spec.shape) * scale;
    if (i == 5 && bad != 0) grad.view(-1)[0] = bad;
    p.grad = at::empty_like(p.master.detach()).copy_(grad);
  }
}

TrainingOptions drawn_options(std::mt19937_64& random) {
  const auto coin = [&] { return random() % 2 == 0; };
  TrainingOptions options;
  options.optimizer = std::vector<std::string>{"sgd", "adam", "adamw"}[random() % 3];
  options.weight_decay = coin() ? 0.1 : 0;
  options.decay_norms_and_biases = coin();
  options.clip_norm = coin() ? 20 : 0;
  options.ema = coin() ? 0.9 : 0;
  options.momentum = coin() ? 0.9 : 0;
  options.nesterov = coin();
  options.amsgrad = coin();
  options.keras_epsilon = coin();
  options.epsilon = coin() ? 1e-2 : 1e-8;
  return options;
}

std::vector<at::Tensor> everything(const ParameterSet& parameters, const Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const Parameter& p : parameters.all()) {
    all.push_back(p.master.detach().clone());
    all.push_back(p.value.detach().clone());
    if (p.ema.defined()) all.push_back(p.ema.clone());
  }
  for (const auto& [name, tensor] : optimizer.state()) all.push_back(tensor.clone());
  return all;
}

void expect_same(const ParameterSet& a, const Optimizer& host, const ParameterSet& b, const Optimizer& device) {
  for (size_t i = 0; i < a.all().size(); ++i) {
    const Parameter &p = a.all()[i], &q = b.all()[i];
    EXPECT_LT(relative(q.master, p.master), 1e-6) << p.name();
    if (p.ema.defined()) {
      EXPECT_LT(relative(q.ema, p.ema), 1e-6) << p.name();
    }
    EXPECT_TRUE(at::equal(q.value.detach(), q.master.detach().to(q.value.scalar_type()))) << p.name();
  }
  const auto left = host.state(), right = device.state();
  for (size_t i = 0; i < left.size(); ++i) EXPECT_LT(relative(right[i].second, left[i].second), 1e-6) << left[i].first;
  for (const auto& get : {&Optimizer::grad_norm, &Optimizer::found_inf}) {
    const float expected = (host.*get)().item<float>(), got = (device.*get)().item<float>();
    EXPECT_TRUE(std::isnan(expected)   ? std::isnan(got)
                : std::isinf(expected) ? got == expected
                                       : std::abs(got - expected) <= 1e-5f * expected)
        << got << " " << expected;
  }
}

TEST(OptimizerCuda, LeavesTheStateOfTheLoopsOfTheCpu) {
  if (skip()) GTEST_SKIP() << "no GPU";
  const int64_t start = drawn_seed();
  for (int64_t seed = start; seed < start + cuda::cases(24); ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const TrainingOptions options = drawn_options(random);
    const at::ScalarType type = std::vector{at::kFloat, at::kBFloat16, at::kHalf}[random() % 3];
    const Precision precision = random() % 2 == 0 ? Precision::k16Mixed : Precision::k32;
    const bool channels_last = random() % 2 == 0;
    ParameterSet a = make_parameters(seed, at::kCPU, type, channels_last),
                 b = make_parameters(seed, at::kCUDA, type, channels_last);
    Optimizer host(options, a, precision), device(options, b, precision);
    for (int step = 0; step < 5; ++step) {
      const double bad = step == 2   ? std::numeric_limits<double>::infinity()
                         : step == 3 ? std::numeric_limits<double>::quiet_NaN()
                                     : 0;
      const double scale = host.loss_scale().item<float>();
      set_grads(a, static_cast<uint64_t>(seed * 10 + step), scale, bad);
      set_grads(b, static_cast<uint64_t>(seed * 10 + step), scale, bad);
      host.set_lr(0.01 / (1 + step)), device.set_lr(0.01 / (1 + step));
      const auto before = everything(b, device);
      host.step(), device.step();
      expect_same(a, host, b, device);
      if (bad == 0) continue;
      const auto after = everything(b, device);  // but for the five numbers at the end nothing may move
      for (size_t i = 0; i + 5 < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i])) << i;
    }
    EXPECT_EQ(device.count().item<float>(), 3);
    EXPECT_EQ(device.bad_steps().item<float>(), 2);
    EXPECT_TRUE(at::equal(b.all()[0].master.detach().cpu(), a.all()[0].master.detach()));
    if (HasFailure())
      FAIL() << options.optimizer << " amsgrad " << options.amsgrad << " keras " << options.keras_epsilon;
  }
}

TEST(OptimizerCuda, TheLossScaleGrowsAfterTwoThousandGoodSteps) {
  if (skip()) GTEST_SKIP() << "no GPU";
  ParameterSet parameters;
  parameters.add({"a", ParameterKind::kBias, {2}});
  parameters.to(at::Device(at::kCUDA));
  TrainingOptions options;
  options.optimizer = "sgd";
  Optimizer optimizer(options, parameters, Precision::k16Mixed);
  parameters.all()[0].grad = at::ones({2}, at::kCUDA);
  for (int step = 0; step < kScaleGrowthInterval; ++step) {
    if (step == kScaleGrowthInterval - 1) {
      EXPECT_EQ(optimizer.loss_scale().item<float>(), kFirstLossScale);
    }
    optimizer.step();
  }
  EXPECT_EQ(optimizer.loss_scale().item<float>(), 2 * kFirstLossScale);
}

TEST(OptimizerCuda, GivesTheSameBitsEveryTime) {
  if (skip()) GTEST_SKIP() << "no GPU";
  TrainingOptions options;
  options.optimizer = "adamw";
  options.clip_norm = 1;
  options.ema = 0.9;
  std::vector<at::Tensor> first;
  for (int run = 0; run < cuda::launches(); ++run) {
    ParameterSet parameters = make_parameters(7, at::kCUDA, at::kBFloat16, true);
    Optimizer optimizer(options, parameters, Precision::k32);
    optimizer.set_lr(1e-2);
    set_grads(parameters, 8, 1, 0);
    optimizer.step();
    const auto all = everything(parameters, optimizer);
    if (run == 0) first = all;
    for (size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(at::equal(all[i], first[i])) << run << " " << i;
  }
}

TEST(ParametersCuda, GradientsOfAnyTypeAreAddedIntoOneFixedPlace) {
  if (skip()) GTEST_SKIP() << "no GPU";
  for (const bool channels_last : {false, true}) {
    ParameterSet parameters = make_parameters(3, at::kCUDA, at::kBFloat16, channels_last);
    std::map<size_t, const void*> places;
    for (int step = 0; step < 2; ++step) {
      parameters.zero_grads();
      std::vector<at::Tensor> expected(parameters.all().size());
      for (int micro = 0; micro < 3; ++micro) {
        for (size_t i = 0; i < expected.size(); ++i) {
          Parameter& p = parameters.all()[i];
          if (!is_trained(p.spec.kind) || (i == 0 && micro == 0)) continue;
          at::Tensor grad = at::randn(p.spec.shape, p.value.options());
          if (i % 3 != 0) grad = at::empty_like(p.value).copy_(grad);  // the others come in another layout
          p.value.mutable_grad() = grad;
          const at::Tensor part = grad.to(at::kDouble);
          expected[i] = expected[i].defined() ? expected[i] + part : part;
        }
        parameters.collect_grads();
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        const Parameter& p = parameters.all()[i];
        ASSERT_EQ(p.grad.defined(), expected[i].defined()) << i;
        if (!p.grad.defined()) continue;
        EXPECT_EQ(p.grad.scalar_type(), at::kFloat);
        EXPECT_EQ(p.grad.strides(), p.master.strides());
        EXPECT_LT(relative(p.grad, expected[i]), 1e-6) << i;
        EXPECT_FALSE(p.value.grad().defined());
        EXPECT_EQ(places.try_emplace(i, p.grad.data_ptr()).first->second, p.grad.data_ptr());
      }
    }
  }
}

TEST(ParametersCuda, StatisticsSettleOrGoBack) {
  if (skip()) GTEST_SKIP() << "no GPU";
  for (const float bad : {0.0f, 1.0f}) {
    ParameterSet parameters;
    parameters.add({"mean", ParameterKind::kRunningMean, {9001}});
    parameters.add({"count", ParameterKind::kBatchCount, {}});
    parameters.to(at::Device(at::kCUDA));
    for (Parameter& p : parameters.all()) p.value.fill_(5);
    parameters.settle_statistics(at::full({}, bad, at::kCUDA));
    for (const Parameter& p : parameters.all()) {
      const float expected = bad != 0 ? 0.0f : p.name() == "count" ? 6.0f : 5.0f;
      EXPECT_TRUE((p.value == expected).all().item<bool>()) << p.name();
      EXPECT_TRUE((p.master == expected).all().item<bool>()) << p.name();
    }
  }
}

double milliseconds_of(const std::function<void()>& work) {
  for (int i = 0; i < 5; ++i) work();
  torch::cuda::synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) work();
  torch::cuda::synchronize();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / 50;
}

// Prints; the bounds are loose ones that a GPU shared with others still keeps.
TEST(OptimizerCuda, TakesLittleMoreThanTheMovedBytesNeed) {
  if (skip()) GTEST_SKIP() << "no GPU";
  for (const std::string name : {"adam", "sgd"}) {
    for (const int64_t layers : {3, 56}) {
      ParameterSet parameters;
      for (int64_t i = 0; i < layers; ++i) {
        const int64_t channels = layers == 3 ? 32 : 272;
        parameters.add({concat(i, ".weight"), ParameterKind::kConvWeight, {channels, channels, 3, 3, 3}});
        parameters.add({concat(i, ".scale"), ParameterKind::kNormScale, {channels}});
      }
      parameters.to(at::Device(at::kCUDA));
      parameters.set_compute_type(at::kBFloat16);
      TrainingOptions options;
      options.optimizer = name;
      Optimizer optimizer(options, parameters, Precision::k32);
      optimizer.set_lr(1e-3);
      const auto leave = [&] {
        for (Parameter& p : parameters.all()) p.value.mutable_grad() = p.value.detach();
      };
      leave();
      parameters.collect_grads();
      const double step = milliseconds_of([&] { optimizer.step(); });
      const double collect = milliseconds_of([&] {
        leave();
        parameters.zero_grads();
        leave();
        parameters.collect_grads();
      });
      std::printf("%s, %.1f M parameters: step %.3f ms, gradients to float32 %.3f ms\n", name.c_str(),
                  static_cast<double>(parameters.count()) / 1e6, step, collect);
      EXPECT_LT(step, layers == 3 ? 1.0 : 3.0);
    }
  }
}

}  // namespace
}  // namespace vox
