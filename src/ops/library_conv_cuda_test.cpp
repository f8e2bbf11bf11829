// cuDNN's convolutions with as few plans tried as they need, against torch in float64.
#include <ATen/DeviceAccelerator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <random>

#include "base/drawn_seed.h"
#include "ops/device.h"
#include "ops/kernel_choice.h"
#include "ops/library_conv.h"

namespace vox::ops {
namespace {

using at::Tensor;

struct ConvCase {
  LibraryConv how;
  at::ScalarType type;
  Tensor x, weight, bias;
};

double distance(const Tensor& value, const Tensor& truth) {
  return (value.to(at::kDouble) - truth).norm().item<double>() / std::max(truth.norm().item<double>(), 1e-12);
}

int64_t held_peak() {
  auto* const allocator = at::getDeviceAllocator(at::kCUDA);
  return allocator->getDeviceStats(0).allocated_bytes[0].peak;
}

class LibraryConvCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP();
    seed_ = drawn_seed();
    source_.seed(seed_);
    torch::manual_seed(seed_);
    at::globalContext().setBenchmarkCuDNN(true);
    set_kernel_timing(KernelTiming::kOncePerShape);
  }
  void TearDown() override {
    at::globalContext().setBenchmarkCuDNN(false);
    set_kernel_timing(KernelTiming::kFixed);
  }

  int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(source_); }

  ConvCase draw_case() {
    ConvCase c;
    c.type = draw(0, 3) == 0 ? at::kFloat : draw(0, 1) ? at::kBFloat16 : at::kHalf;
    c.how.transposed = draw(0, 1);
    const int64_t kernel = draw(1, 4), in = draw(1, 40), out = draw(1, 40);
    for (size_t a = 0; a < 3; ++a) {
      c.how.stride[a] = draw(1, 2);
      c.how.padding[a] = draw(0, (kernel - 1) / 2);
      if (c.how.transposed && c.how.stride[a] == 2) c.how.output_padding[a] = draw(0, 1);
    }
    const auto made = [&](at::IntArrayRef size, double scale) {
      Tensor values = (at::randn(size, at::kCUDA) * scale).to(c.type);
      if (values.dim() == 5 && c.type != at::kFloat) values = values.contiguous(at::MemoryFormat::ChannelsLast3d);
      return values.set_requires_grad(true);
    };
    const std::vector<int64_t> weight{c.how.transposed ? in : out, c.how.transposed ? out : in, kernel, kernel, kernel};
    c.x = made({draw(1, 3), in, draw(5, 18), draw(5, 18), draw(5, 18)}, 1);
    c.weight = made(weight, 0.2);
    if (draw(0, 1)) c.bias = made({out}, 1);
    return c;
  }

  void compare(const ConvCase& c) {
    const auto twin = [](const Tensor& values) {
      return values.defined() ? values.detach().to(at::kDouble).set_requires_grad(true) : values;
    };
    const auto optional = [](const Tensor& values) { return values.defined() ? std::optional(values) : std::nullopt; };
    const Tensor x = twin(c.x), weight = twin(c.weight), bias = twin(c.bias);
    const LibraryConv& how = c.how;
    const Tensor expected = at::convolution(x, weight, optional(bias), how.stride, how.padding, {1, 1, 1},
                                            how.transposed, how.output_padding, 1);
    const Tensor direction = at::randn_like(expected).to(c.type);
    expected.backward(direction.to(at::kDouble));
    const Tensor y = library_convolution(c.x, c.weight, optional(c.bias), how);
    y.backward(direction);
    const double bound = c.type == at::kFloat ? 2e-3 : c.type == at::kHalf ? 2e-3 : 1e-2;  // float32 may be TF32
    EXPECT_LT(distance(y, expected), bound);
    EXPECT_LT(distance(c.x.grad(), x.grad()), bound);
    EXPECT_LT(distance(c.weight.grad(), weight.grad()), bound);
    if (c.bias.defined()) EXPECT_LT(distance(c.bias.grad(), bias.grad()), bound);
    for (const Tensor& tensor : {c.x, c.weight, c.bias})
      if (tensor.defined()) tensor.mutable_grad().reset();
  }

  unsigned seed_ = 0;
  std::mt19937 source_;
};

TEST_F(LibraryConvCuda, IsTorchsInDouble) {
  for (int i = 0; i < 6; ++i) {
    const ConvCase c = draw_case();
    SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed_ << " case " << i << ": " << c.type << " " << c.x.sizes()
                                    << " by " << c.weight.sizes() << (c.how.transposed ? " transposed" : ""));
    const size_t before = kernel_choices().size();
    compare(c);
    EXPECT_GE(kernel_choices().size(), before + 3);  // forward and both gradients
    compare(c);
    EXPECT_EQ(kernel_choices().size(), before + 3);
  }
}

// What one program found out, the next one starts with.
TEST_F(LibraryConvCuda, KnownChoicesAreTaken) {
  source_.discard(1000);  // with a seed that is given, no case of the test before: its choices are known
  const ConvCase c = draw_case();
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed_);
  const KernelChoices before = kernel_choices();
  compare(c);
  KernelChoices one;
  for (const auto& [name, choice] : kernel_choices()) {
    if (!before.contains(name)) one[name] = "1";
  }
  ASSERT_EQ(one.size(), 3);
  adopt_kernel_choices(one);
  milliseconds_elsewhere(c.x, [&] { compare(c); });  // a thread without plans
  for (const auto& [name, choice] : one) EXPECT_EQ(kernel_choices().at(name), "1");
}

TEST_F(LibraryConvCuda, TorchTakesNoMoreThanALimit) {
  const Tensor on = at::empty({1}, at::kCUDA);
  constexpr int64_t kMega = 1 << 20;
  at::getDeviceAllocator(at::kCUDA)->emptyCache();
  {
    const MemoryLimit limit(on, 64 * kMega);
    EXPECT_THROW(at::empty({512 * kMega}, on.options().dtype(at::kByte)), c10::OutOfMemoryError);
  }
  EXPECT_EQ(at::empty({512 * kMega}, on.options().dtype(at::kByte)).numel(), 512 * kMega);
}

// Some of cuDNN's plans for one channel in float32 would like gigabytes.
TEST_F(LibraryConvCuda, PlansGetNoMoreMemoryThanTheyMay) {
  const Tensor x = at::randn({4, 1, 112, 112, 112}, at::kCUDA).set_requires_grad(true);
  const Tensor weight = at::randn({1, 1, 3, 3, 3}, at::kCUDA).set_requires_grad(true);
  auto* const allocator = at::getDeviceAllocator(at::kCUDA);
  allocator->emptyCache();
  const int64_t before = allocator->getDeviceStats(0).allocated_bytes[0].current;
  allocator->resetPeakStats(0);
  const Tensor y = library_convolution(x, weight, std::nullopt, {.padding = {1, 1, 1}});
  y.backward(at::ones_like(y));
  EXPECT_LT(held_peak() - before, int64_t{700} << 20);
}

// What choosing plans adds to the memory that torch holds is room for them to work in; for the gradient of the input,
// too, which takes the input's place.
TEST_F(LibraryConvCuda, ChoosingTakesThePlaceOfTheInput) {
  const auto made = [](at::IntArrayRef size) {
    return at::randn(size, at::kCUDA).to(at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast3d);
  };
  const auto added = [](const std::function<void()>& work) {
    auto* const allocator = at::getDeviceAllocator(at::kCUDA);
    allocator->emptyCache();
    const int64_t before = allocator->getDeviceStats(0).reserved_bytes[0].current;
    allocator->resetPeakStats(0);
    work();
    return allocator->getDeviceStats(0).reserved_bytes[0].peak - before;
  };
  const LibraryConv how{.padding = {1, 1, 1}};
  const std::vector<int64_t> ones{1, 1, 1}, none{0, 0, 0};
  for (const bool by_autograd : {false, true}) {  // which holds the input, too
    const int64_t samples = by_autograd ? 3 : 2;
    const Tensor weight = (made({32, 96, 3, 3, 3}) * 0.02).set_requires_grad(true),
                 dy = made({samples, 32, 64, 64, 64});
    const Tensor leaf = made({samples, 96, 64, 64, 64}).set_requires_grad(true), x = (leaf + 0).detach();
    const auto [dx, dw, unused] =
        at::convolution_backward(dy, leaf.detach(), weight.detach(), at::OptionalIntArrayRef(), ones, ones, ones, false,
                                 none, 1, {true, true, false});
    const auto room = static_cast<int64_t>((leaf.nbytes() + dy.nbytes()) / 2) + (int64_t{20} << 20);
    std::pair<Tensor, Tensor> own;
    if (by_autograd) {
      const Tensor y = library_convolution(leaf + 0, weight, std::nullopt, how);
      EXPECT_LT(added([&] { y.backward(dy); }), room);
      own = {leaf.grad(), weight.grad()};
    } else {
      const auto only = [&](WantedGradients wanted) { return library_gradients(dy, x, weight, how, wanted); };
      EXPECT_LT(added([&] { own.second = only({.x = false}).second; }), room);
      EXPECT_LT(added([&] { own.first = only({.weight = false}).first; }), room);
    }
    EXPECT_LT(distance(own.first, dx.to(at::kDouble)), 1e-2);
    EXPECT_LT(distance(own.second, dw.to(at::kDouble)), 1e-2);
  }
}

}  // namespace
}  // namespace vox::ops
