#include "kernels/upsample_cuda.h"

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
at::Tensor transposed(const at::Tensor& x, const at::Tensor& weights, const at::Tensor& bias) {
  return at::conv_transpose3d(x, weights, bias, at::IntArrayRef{2, 2, 2});
}

struct UpLayer {
  UpLayer(const Shape5& s, int64_t out, at::ScalarType element, bool waits, bool has_bias)
      : x(at::randn({s.n, s.z, s.y, s.x, s.c}, floats()).to(element)),
        weights(at::randn({s.c, out, 2, 2, 2}, floats()).to(element)),
        bias(at::randn({out}, floats()).to(element)),
        scale(at::randn({s.n, s.c}, floats())),
        shift(at::randn({s.n, s.c}, floats())),
        y(at::full({s.n, 2 * s.z, 2 * s.y, 2 * s.x, out}, NAN, floats().dtype(element))) {
    layer.x = x.data_ptr();
    layer.type = element == at::kHalf ? Scalar::kFloat16 : Scalar::kBFloat16;
    layer.shape = s;
    layer.out = out;
    layer.weights = weights.data_ptr();
    if (has_bias) layer.bias = bias.data_ptr();
    if (waits) {
      layer.scale = scale.data_ptr<float>(), layer.shift = shift.data_ptr<float>();
      layer.slope = 0.01f;
    }
  }
  void forward() const { upsample_forward(layer, y.data_ptr(), nullptr); }

  Upsample layer;
  at::Tensor x, weights, bias, scale, shift, y;
};

void compare(const Shape5& s, int64_t out, at::ScalarType element, bool waits, bool has_bias) {
  SCOPED_TRACE(testing::Message() << s.n << "x" << s.z << "x" << s.y << "x" << s.x << "x" << s.c << " to " << out << " "
                                  << element << " waits " << waits << " bias " << has_bias);
  UpLayer up(s, out, element, waits, has_bias);
  const at::Tensor channels_last = up.weights.contiguous(at::MemoryFormat::ChannelsLast3d);
  if (s.z % 2) up.layer.weights = channels_last.data_ptr(), up.layer.channels_last = true;
  ASSERT_TRUE(upsample_available(up.layer));
  up.forward();
  at::Tensor a = up.x.to(at::kDouble).permute({0, 4, 1, 2, 3});
  if (waits) {
    const auto per_sample = [&](const at::Tensor& t) { return t.to(at::kDouble).view({s.n, s.c, 1, 1, 1}); };
    a = at::leaky_relu(a * per_sample(up.scale) + per_sample(up.shift), 0.01f);
  }
  const at::Tensor bias = has_bias ? up.bias.to(at::kDouble) : at::Tensor();
  const at::Tensor truth = transposed(a, up.weights.to(at::kDouble), bias);
  const at::Tensor ours = up.y.to(at::kDouble).permute({0, 4, 1, 2, 3});
  EXPECT_LT(((ours - truth).norm() / truth.norm()).item<double>(), element == at::kHalf ? 6e-4 : 4e-3);
}

TEST(UpsampleCuda, IsTorchsTransposedConvolutionInDouble) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const unsigned seed = drawn_seed();
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed);
  std::mt19937 engine(seed);
  torch::manual_seed(seed);
  const auto random = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
  };
  for (const int64_t in : {32, 64, 128, 256, 320}) {
    for (const int64_t out : {32, 64, 96, 128, 256, 320}) {
      const Shape5 shape{random(1, small_tests() ? 2 : 7), random(1, 9), random(1, 9), random(1, 9), in};
      compare(shape, out, random(0, 1) ? at::kBFloat16 : at::kHalf, random(0, 1), random(0, 1));
    }
  }
  compare({2, side(24), side(25), side(27), 64}, 32, at::kBFloat16, true, true);
}

TEST(UpsampleCuda, AHundredAndFiftyRunsGiveTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const int64_t in : {64, 256}) {
    const UpLayer up({2, side(24), side(24), side(23), in}, in / 2, at::kBFloat16, true, true);
    up.forward();
    const at::Tensor first = up.y.clone();
    for (int run = 1; run < launches(); ++run) {
      up.y.fill_(NAN);
      up.forward();
      ASSERT_TRUE(at::equal(up.y, first)) << "run " << run;
    }
  }
}

TEST(UpsampleCuda, DISABLED_Timing) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  constexpr int kRuns = 40;
  at::globalContext().setBenchmarkCuDNN(true);
  constexpr int64_t kSizes[][4] = {{2, 64, 32, 64},  {2, 128, 64, 32}, {2, 256, 128, 16}, {2, 320, 256, 8},
                                   {2, 320, 320, 4}, {7, 64, 32, 64},  {4, 128, 64, 28}};
  for (const auto& [n, in, out, size] : kSizes) {
    const UpLayer up({n, size, size, size, in}, out, at::kBFloat16, true, true);
    const at::Tensor x = up.x.permute({0, 4, 1, 2, 3}),
                     weights = up.weights.contiguous(at::MemoryFormat::ChannelsLast3d);
    const double ours = milliseconds_of(kRuns, [&] { up.forward(); });
    const double theirs = milliseconds_of(kRuns, [&] { transposed(x, weights, up.bias); });
    const double bytes = 2.0 * static_cast<double>(up.x.numel() + up.y.numel());
    std::printf("upsample %dx%d^3 %d to %d: %7.4f ms %5.2f TB/s, torch %7.4f ms\n", int(n), int(size), int(in),
                int(out), ours, bytes / ours / 1e9, theirs);
  }
}

}  // namespace
}  // namespace vox::cuda
