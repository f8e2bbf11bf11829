#include "kernels/head_cuda.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <functional>
#include <random>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "kernels/cuda_test_memory.h"

namespace vox::cuda {
namespace {

at::TensorOptions floats() {
  return at::TensorOptions(at::kCUDA).dtype(at::kFloat);
}
double error(const at::Tensor& ours, const at::Tensor& theirs) {
  return ((ours.to(at::kDouble) - theirs).norm() / (theirs.norm() + 1e-30)).item<double>();
}
at::Tensor leaf(const at::Tensor& values) {
  return values.to(at::kDouble).detach().clone().set_requires_grad(true);
}

// An output layer with memory for everything that the kernels write.
struct OutputLayer {
  OutputLayer(const Shape5& s, int64_t classes, at::ScalarType element, bool waits)
      : x(at::randn({s.n, s.z, s.y, s.x, s.c}, floats()).to(element)),
        weights(at::randn({classes, s.c}, floats())),
        bias(at::randn({classes}, floats())),
        dlogits(at::randn({s.n, classes, s.z, s.y, s.x}, floats())),
        scale(at::randn({s.n, s.c}, floats())),
        shift(at::randn({s.n, s.c}, floats())),
        logits(at::full_like(dlogits, NAN)),
        da(at::full_like(x, NAN)),
        dw(at::full_like(weights, NAN)),
        dbias(at::full_like(bias, NAN)) {
    head.x = x.data_ptr();
    head.type = element == at::kHalf ? Scalar::kFloat16 : Scalar::kBFloat16;
    head.shape = s;
    head.out = classes;
    head.weights = weights.data_ptr<float>();
    if (waits) {
      head.scale = scale.data_ptr<float>(), head.shift = shift.data_ptr<float>();
      head.slope = 0.01f;
    }
    workspace = at::full({head_workspace(head) / 4}, NAN, floats());
  }
  void forward() const { head_forward(head, bias.data_ptr<float>(), logits.data_ptr<float>(), nullptr); }
  void backward() const {
    head_backward(head, dlogits.data_ptr<float>(), da.data_ptr(), dw.data_ptr<float>(), dbias.data_ptr<float>(),
                  workspace.data_ptr(), nullptr);
  }

  Head head;
  at::Tensor x, weights, bias, dlogits, scale, shift, logits, da, dw, dbias, workspace;
};

void compare(const Shape5& s, int64_t classes, at::ScalarType element, bool waits) {
  SCOPED_TRACE(testing::Message() << s.n << "x" << s.z << "x" << s.y << "x" << s.x << "x" << s.c << " to " << classes
                                  << " " << element << " waits " << waits);
  const OutputLayer layer(s, classes, element, waits);
  ASSERT_TRUE(head_available(layer.head));
  layer.forward();
  layer.backward();
  at::Tensor before = layer.x.to(at::kDouble);
  if (waits) {
    const auto per_sample = [&](const at::Tensor& t) { return t.to(at::kDouble).view({s.n, 1, 1, 1, s.c}); };
    before = at::leaky_relu(before * per_sample(layer.scale) + per_sample(layer.shift), 0.01f);
  }
  const at::Tensor a = leaf(before), weights = leaf(layer.weights), bias = leaf(layer.bias);
  const at::Tensor logits = (at::matmul(a, weights.t()) + bias).permute({0, 4, 1, 2, 3});
  logits.backward(layer.dlogits.to(at::kDouble));
  EXPECT_LT(error(layer.logits, logits.detach()), 1e-5);
  EXPECT_LT(error(layer.da, a.grad()), element == at::kHalf ? 6e-4 : 4e-3);
  EXPECT_LT(error(layer.dw, weights.grad()), 1e-5);
  const double terms = layer.dlogits.to(at::kDouble).norm().item<double>();  // the sum itself may be near 0
  EXPECT_LT((layer.dbias.to(at::kDouble) - bias.grad()).norm().item<double>(), 1e-5 * terms);
}

TEST(HeadCuda, ForwardAndBackwardAreTorchsInDouble) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const unsigned seed = drawn_seed();
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed);
  std::mt19937 engine(seed);
  torch::manual_seed(seed);
  const auto random = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
  };
  constexpr int64_t kChannels[] = {8, 16, 24, 32, 40, 64, 72, 96, 128, 256, 320, 504, 512};
  for (const int64_t channels : kChannels) {
    for (int64_t classes = 1; classes <= (small_tests() ? 2 : 8); ++classes) {
      const int64_t longest = channels > 100 ? side(10) : side(20);
      const Shape5 shape{random(1, 7), random(1, longest), random(1, longest), random(1, longest), channels};
      compare(shape, classes, random(0, 1) ? at::kBFloat16 : at::kHalf, random(0, 2) > 0);
    }
  }
  compare({2, side(64), side(64), side(65), 32}, 2, at::kBFloat16, true);
}

TEST(HeadCuda, WhatIsNotWantedIsNotWritten) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const OutputLayer layer({2, 4, 5, 6, 32}, 3, at::kBFloat16, true);
  const float* const dlogits = layer.dlogits.data_ptr<float>();
  head_backward(layer.head, dlogits, nullptr, layer.dw.data_ptr<float>(), nullptr, layer.workspace.data_ptr(), nullptr);
  EXPECT_TRUE(at::isfinite(layer.dw).all().item<bool>());
  head_backward(layer.head, dlogits, layer.da.data_ptr(), nullptr, nullptr, layer.workspace.data_ptr(), nullptr);
  EXPECT_TRUE(at::isfinite(layer.da).all().item<bool>());
  EXPECT_TRUE(at::isnan(layer.dbias).all().item<bool>());
}

TEST(HeadCuda, AvailableForTheSizesItWasWrittenFor) {
  Head head;
  head.shape.c = 32, head.out = 2;
  EXPECT_TRUE(head_available(head));
  head.shape.c = 36;
  EXPECT_FALSE(head_available(head));
  head.shape.c = 520;
  EXPECT_FALSE(head_available(head));
  head.shape.c = 32, head.out = 9;
  EXPECT_FALSE(head_available(head));
  head.out = 2, head.type = Scalar::kFloat32;
  EXPECT_FALSE(head_available(head));
}

TEST(HeadCuda, AHundredAndFiftyRunsGiveTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const int64_t channels : {24, 32}) {
    const OutputLayer layer({2, side(48), side(48), side(48), channels}, 3, at::kBFloat16, true);
    std::vector<at::Tensor> outputs{layer.logits, layer.da, layer.dw, layer.dbias}, first;
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

void time(const char* name, const Head& head, double bytes, const std::function<void()>& run) {
  constexpr int kRuns = 60;
  const double seconds = 1e-3 * milliseconds_of(kRuns, run);
  std::printf("%-14s %d to %d, %dx%d^3 %8.4f ms %6.2f TB/s\n", name, int(head.shape.c), int(head.out),
              int(head.shape.n), int(head.shape.z), seconds * 1e3, bytes / seconds / 1e12);
}

TEST(HeadCuda, DISABLED_Timing) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  constexpr int64_t kSizes[][4] = {{2, 32, 128, 2}, {2, 32, 128, 1}, {7, 32, 128, 3}, {2, 32, 128, 8},
                                   {2, 64, 64, 2},  {2, 128, 32, 2}, {2, 320, 8, 2}};
  for (const auto& [n, channels, size, classes] : kSizes) {
    const OutputLayer layer({n, size, size, size, channels}, classes, at::kBFloat16, true);
    const double in = 2 * static_cast<double>(layer.x.numel()), out = 4 * static_cast<double>(layer.logits.numel());
    time("head forward", layer.head, in + out, [&] { layer.forward(); });
    time("head backward", layer.head, 2 * in + out, [&] { layer.backward(); });
  }
}

}  // namespace
}  // namespace vox::cuda
