// Convolutions as matrix products and the mean of neighbours, against torch in float64 with the same rounded operands.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <functional>
#include <random>
#include <utility>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "kernels/cuda_test_memory.h"
#include "ops/feature.h"
#include "ops/feature_state.h"
#include "ops/fused.h"
#include "ops/kernel_choice.h"

namespace vox::ops {
namespace {

using at::Tensor;
using fused::ProductUse;

std::vector<int64_t> three(const Extent3& e) {
  return {e.z, e.y, e.x};
}

Tensor channels_last(const Tensor& values) {
  return values.contiguous(at::MemoryFormat::ChannelsLast3d);
}

struct ProductCase {
  ConvGeometry geometry;
  Extent3 size;
  int64_t n = 1, in = 1, out = 1, second = 0;  // `second`: channels of the input that are a tensor of their own
  at::ScalarType type = at::kBFloat16;
  bool transposed = false, full_weights = false, has_bias = false;
};

std::ostream& operator<<(std::ostream& out, const ProductCase& c) {
  const ConvGeometry& g = c.geometry;
  return out << (c.transposed ? "transposed " : "") << c.n << "x" << c.size << " " << c.in << " (" << c.second
             << ") to " << c.out << ", kernel " << g.kernel << " stride " << g.stride << " padding " << *g.padding
             << " more " << g.output_padding << " " << c.type << " float32 weights " << c.full_weights << " bias "
             << c.has_bias;
}

struct Operands {
  Tensor first, second, weight, bias;

  Tensor convolved(const ProductCase& c) const {
    const ConvGeometry& g = c.geometry;
    const Tensor x = second.defined() ? at::cat({first, second}, 1) : first;
    const std::optional<Tensor> b = bias.defined() ? std::optional(bias) : std::nullopt;
    if (!c.transposed) return at::conv3d(x, weight, b, three(g.stride), three(*g.padding));
    return at::conv_transpose3d(x, weight, b, three(g.stride), three(*g.padding), three(g.output_padding));
  }
  std::vector<Tensor> all() const {
    std::vector<Tensor> given;
    for (const Tensor& t : {first, second, weight, bias})
      if (t.defined()) given.push_back(t);
    return given;
  }
};

Tensor leaf(const Tensor& values, at::ScalarType type) {
  const Tensor on_gpu = values.to(at::kCUDA, type);
  return (on_gpu.dim() == 5 ? channels_last(on_gpu) : on_gpu).set_requires_grad(true);
}

Operands random_operands(const ProductCase& c) {
  const Extent3& s = c.size;
  const Extent3& k = c.geometry.kernel;
  const at::ScalarType weights = c.full_weights ? at::kFloat : c.type;
  Operands given;
  given.first = leaf(at::randn({c.n, c.in - c.second, s.z, s.y, s.x}), c.type);
  if (c.second > 0) given.second = leaf(at::randn({c.n, c.second, s.z, s.y, s.x}), c.type);
  const int64_t a = c.transposed ? c.in : c.out, b = c.transposed ? c.out : c.in;
  given.weight = leaf(at::randn({a, b, k.z, k.y, k.x}), weights);
  if (c.has_bias) given.bias = leaf(at::randn({c.out}), weights);
  return given;
}

Operands in_double(const Operands& given, at::ScalarType weights_as) {
  const auto twin = [](const Tensor& t, at::ScalarType as) {
    return t.defined() ? t.detach().to(as).to(at::kDouble).set_requires_grad(true) : Tensor();
  };
  return {twin(given.first, given.first.scalar_type()), twin(given.second, given.first.scalar_type()),
          twin(given.weight, weights_as), twin(given.bias, at::kDouble)};
}

enum class Way { kProduct, kFolded };

Tensor by_product(const ProductCase& c, const Operands& given, Way way = Way::kProduct) {
  const Feature first = Feature::plain(given.first);
  const Feature input = given.second.defined() ? Feature::concat(first, Feature::plain(given.second)) : first;
  const ConvLayer layer{given.weight, given.bias, c.geometry};
  const auto run = way == Way::kFolded ? (c.transposed ? fused::transposed_folded : fused::convolve_folded)
                                       : (c.transposed ? fused::transposed_by_product : fused::convolve_by_product);
  const auto raw = run(input, layer, {}, ProductUse::kWherePossible);
  return raw ? raw->values : Tensor();
}

double relative_error(const Tensor& value, const Tensor& truth) {
  return ((value.to(at::kDouble) - truth).norm() / truth.norm().clamp_min(1e-12)).item<double>();
}

void compare(const ProductCase& c, Way way = Way::kProduct) {
  SCOPED_TRACE(testing::Message() << c);
  const Operands ours = random_operands(c), truth = in_double(ours, c.type);
  const Tensor y = by_product(c, ours, way);
  ASSERT_TRUE(y.defined());
  const Tensor expected = truth.convolved(c);
  ASSERT_EQ(y.sizes(), expected.sizes());
  EXPECT_EQ(y.scalar_type(), c.full_weights ? at::kFloat : c.type);
  // Each sum is of values rounded to half precision once or twice: twice their relative rounding.
  const double bound = c.type == at::kHalf ? 1e-3 : 8e-3;
  EXPECT_LT(relative_error(y, expected), bound);
  const Tensor direction = at::randn(y.sizes(), y.options()).to(c.type);
  y.backward(channels_last(direction.to(y.scalar_type())));
  expected.backward(direction.to(at::kDouble));
  const std::vector<Tensor> leaves = ours.all(), doubles = truth.all();
  for (size_t i = 0; i < leaves.size(); ++i)
    EXPECT_LT(relative_error(leaves[i].grad(), doubles[i].grad()), bound) << "gradient " << i;
}

class ColumnsCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
    seed_ = drawn_seed();
    engine_.seed(seed_);
    torch::manual_seed(seed_);
  }
  int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  Extent3 draw_extent(int64_t low, int64_t high) { return {draw(low, high), draw(low, high), draw(low, high)}; }
  ProductCase draw_case(bool transposed) {
    ProductCase c;
    ConvGeometry& g = c.geometry;
    g.kernel = draw_extent(1, 4);
    g.stride = draw_extent(1, 2);
    c.size = draw_extent(4, 9);
    g.padding = Extent3{};
    for (int a = 0; a < 3; ++a) {
      (*g.padding)[a] = draw(0, g.kernel[a] / 2);
      if (transposed && g.stride[a] == 2) g.output_padding[a] = draw(0, 1);
    }
    c.n = draw(1, 7);
    c.in = draw(0, 1) ? 8 * draw(1, 12) : draw(1, 40);
    c.out = draw(0, 1) ? 8 * draw(1, 12) : draw(1, 40);
    c.type = draw(0, 3) ? at::kBFloat16 : at::kHalf;
    c.transposed = transposed;
    c.full_weights = transposed && draw(0, 2) == 0;
    c.has_bias = draw(0, 1);
    return c;
  }
  unsigned seed_ = 0;
  std::mt19937 engine_;
};

TEST_F(ColumnsCuda, ConvolutionsAreTorchsInDouble) {
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed_);
  for (int i = 0; i < cuda::cases(40); ++i) compare(draw_case(false));
}

TEST_F(ColumnsCuda, TransposedConvolutionsAreTorchsInDouble) {
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed_);
  for (int i = 0; i < cuda::cases(40); ++i) compare(draw_case(true));
}

// Two parts of the input, each with its own product; many rows, which are summed in pieces.
TEST_F(ColumnsCuda, FewOutputsOfTwoInputsAreTorchsInDouble) {
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed_);
  for (int i = 0; i < cuda::cases(12); ++i) {
    ProductCase c = draw_case(true);
    c.geometry.kernel = {4, 4, 4};
    c.geometry.padding = Extent3{1, 1, 1};
    c.geometry.stride = {2, 2, 2};
    c.in = 128;
    c.second = i % 4 < 2 ? 8 * draw(1, 15) : 32 * draw(1, 3);  // the latter have a kernel of their own
    c.out = draw(1, 2);
    c.full_weights = draw(0, 1);
    if (i % 2 == 0) c.size = {cuda::side(16), cuda::side(16), cuda::side(16)};
    compare(c);
  }
}

// Kernels of 2 to 4 and any padding, by the kernel that keeps the products to itself.
TEST_F(ColumnsCuda, NarrowKernelsAreTorchsInDouble) {
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed_);
  for (int i = 0; i < cuda::cases(24); ++i) {
    ProductCase c = draw_case(true);
    c.geometry.stride = {2, 2, 2};
    c.geometry.kernel = draw_extent(2, 4);
    for (int a = 0; a < 3; ++a) (*c.geometry.padding)[a] = draw(0, c.geometry.kernel[a] / 2);
    c.size = draw_extent(2, cuda::side(35));
    c.in = 32 * draw(2, 4);
    c.second = draw(0, 1) ? 32 : 0;
    c.out = std::max<int64_t>(1, std::min<int64_t>(draw(1, 4), 64 / c.geometry.kernel.voxels()));
    compare(c);
  }
}

// Both parts still wait for their norm and activation.
TEST_F(ColumnsCuda, NarrowKernelsApplyWhatTheirInputsWaitFor) {
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed_);
  const ConvGeometry g{.kernel = {4, 4, 4}, .stride = {2, 2, 2}, .padding = Extent3{1, 1, 1}};
  const Tensor gamma = leaf(1 + 0.3 * at::randn({32}), at::kFloat), beta = leaf(at::randn({32}), at::kFloat);
  Epilogue epilogue;
  epilogue.norm = {.kind = NormKind::kInstance, .scale = &gamma, .shift = &beta, .training = true};
  epilogue.activation = {.kind = Activation::kLeakyRelu, .negative_slope = 0.2};
  const Tensor a = leaf(at::randn({2, 32, 9, 10, 17}), at::kBFloat16),
               b = leaf(at::randn({2, 32, 9, 10, 17}), at::kBFloat16);
  const Tensor weight = leaf(at::randn({64, 1, 4, 4, 4}), at::kFloat), bias = leaf(at::randn({1}), at::kFloat);
  const Feature input = Feature::concat(apply(Feature::plain(a), epilogue), apply(Feature::plain(b), epilogue));
  ASSERT_TRUE(input.state().first->state().deferred.has_value());
  const Tensor y = conv_transpose(input, {weight, bias, g}).materialize();
  const auto twin = [](const Tensor& t) { return t.detach().to(at::kDouble).set_requires_grad(true); };
  const Tensor gamma_t = twin(gamma), beta_t = twin(beta), a_t = twin(a), b_t = twin(b);
  const Tensor weight_t = twin(weight.detach().to(at::kBFloat16)), bias_t = twin(bias);
  const auto active = [&](const Tensor& x) {
    return at::leaky_relu(at::instance_norm(x, gamma_t, beta_t, {}, {}, true, 0.1, 1e-5, false), 0.2);
  };
  const Tensor truth = at::conv_transpose3d(at::cat({active(a_t), active(b_t)}, 1), weight_t, bias_t, 2, 1);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_LT(relative_error(y, truth), 8e-3);
  const Tensor direction = at::randn_like(y);
  y.backward(direction);
  truth.backward(direction.to(at::kDouble));
  EXPECT_LT(relative_error(weight.grad(), weight_t.grad()), 8e-3);
  EXPECT_LT(relative_error(bias.grad(), bias_t.grad()), 1e-4);
  // Rounding moves some values over the kink of the activation: of a share p of voxels the root of p.
  for (const auto& [ours, theirs] : {std::pair(gamma, gamma_t), std::pair(beta, beta_t), std::pair(a, a_t)})
    EXPECT_LT(relative_error(ours.grad(), theirs.grad()), 0.1);
}

TEST_F(ColumnsCuda, FoldedStridesAreTorchsInDouble) {
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed_);
  for (int i = 0; i < cuda::cases(24); ++i) {
    ProductCase c = draw_case(i % 2 == 1);
    c.geometry.kernel = {2 * draw(1, 2), 2 * draw(1, 2), 2 * draw(1, 2)};
    c.geometry.stride = {2, 2, 2};
    c.geometry.padding = draw_extent(0, 1);
    c.geometry.output_padding = {0, 0, 0};
    c.size = draw_extent(4, cuda::side(15));
    c.full_weights = false;
    compare(c, Way::kFolded);
  }
}

// Products leave norm and activation to their readers, and activations work in place.
TEST_F(ColumnsCuda, LayersOfManyChannelsAreTorchsInDouble) {
  const ConvGeometry g{.kernel = {4, 4, 4}, .stride = {2, 2, 2}, .padding = Extent3{1, 1, 1}};
  Epilogue epilogue;
  epilogue.activation = {.kind = Activation::kLeakyRelu, .negative_slope = 0.2};
  const Tensor x = leaf(at::randn({2, 64, 8, 8, 8}), at::kBFloat16), none;
  const Tensor down = leaf(at::randn({96, 64, 4, 4, 4}) / 64, at::kBFloat16),
               up = leaf(at::randn({96, 64, 4, 4, 4}) / 80, at::kBFloat16);
  const Feature below = conv(Feature::plain(x), {down, none, g}, epilogue);
  const Tensor y = conv_transpose(below, {up, none, g}, epilogue).materialize();
  const auto twin = [](const Tensor& t) { return t.detach().to(at::kDouble).set_requires_grad(true); };
  const Tensor x_t = twin(x), down_t = twin(down), up_t = twin(up);
  const Tensor truth =
      at::leaky_relu(at::conv_transpose3d(at::leaky_relu(at::conv3d(x_t, down_t, {}, 2, 1), 0.2), up_t, {}, 2, 1), 0.2);
  EXPECT_LT(relative_error(y, truth), 1e-2);
  const Tensor direction = at::randn_like(y);
  y.backward(direction);
  truth.backward(direction.to(at::kDouble));
  // Rounding moves some values over the kink of the activation: of a share p of voxels the root of p.
  for (const auto& [ours, theirs] : {std::pair(x, x_t), std::pair(down, down_t), std::pair(up, up_t)})
    EXPECT_LT(relative_error(ours.grad(), theirs.grad()), 0.1);
}

TEST_F(ColumnsCuda, RunsGiveTheSameBits) {
  ProductCase deep{.geometry = {.kernel = {4, 4, 4}, .stride = {2, 2, 2}, .padding = Extent3{1, 1, 1}},
                   .size = {8, 8, 8},
                   .n = 2,
                   .in = 128,
                   .out = 128};
  ProductCase few = deep;
  few.transposed = few.full_weights = few.has_bias = true;
  few.size = {16, 16, 16};
  few.out = 1;
  few.second = 64;
  for (const ProductCase& c : {deep, few}) {
    const Operands given = random_operands(c);
    const Tensor direction = at::randn_like(by_product(c, given));
    std::vector<Tensor> first;
    for (int run = 0; run < cuda::launches(); ++run) {
      const Tensor y = by_product(c, given);
      std::vector<Tensor> results = torch::autograd::grad({y}, given.all(), {direction});
      results.push_back(y.detach());
      if (first.empty()) first = results;
      for (size_t i = 0; i < results.size(); ++i) ASSERT_TRUE(at::equal(results[i], first[i])) << run << " of " << i;
    }
  }
}

TEST_F(ColumnsCuda, GenericKernelsAreCudnns) {
  set_kernel_arch("generic");
  const ProductCase c = draw_case(false);
  const Tensor y = by_product(c, random_operands(c));
  set_kernel_arch("auto");
  EXPECT_FALSE(y.defined());
}

TEST_F(ColumnsCuda, MeanOfNeighboursIsTorchsInDouble) {
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed_);
  const PoolWindow window{{3, 3, 3}, {1, 1, 1}, {1, 1, 1}};
  for (int i = 0; i < cuda::cases(20); ++i) {
    const Tensor x = at::randn({draw(1, 3), draw(1, 3), draw(3, 20), draw(3, 20), draw(3, 40)}, at::kCUDA);
    const Tensor ours = x.clone().set_requires_grad(true), truth = x.to(at::kDouble).set_requires_grad(true);
    const Tensor y = average_pool(Feature::plain(ours), window).materialize();
    const Tensor expected = at::avg_pool3d(truth, 3, 1, 1, false, false);
    const Tensor direction = at::randn_like(y);
    y.backward(direction);
    expected.backward(direction.to(at::kDouble));
    EXPECT_LT(relative_error(y, expected), 1e-6) << x.sizes();
    EXPECT_LT(relative_error(ours.grad(), truth.grad()), 1e-6) << x.sizes();
  }
}

TEST_F(ColumnsCuda, AnInterleavedImageIsTheImageRounded) {
  SCOPED_TRACE(testing::Message() << "VOXLOOM_SEED=" << seed_);
  for (int i = 0; i < cuda::cases(12); ++i) {
    const Tensor image = at::randn({draw(1, 3), draw(2, 32), draw(1, 12), draw(1, 12), draw(1, 33)}, at::kCUDA);
    const at::ScalarType type = draw(0, 1) ? at::kBFloat16 : at::kHalf;
    const auto values = fused::interleaved(image, type);
    ASSERT_TRUE(values.has_value());
    EXPECT_TRUE(values->is_contiguous(at::MemoryFormat::ChannelsLast3d)) << image.sizes();
    EXPECT_TRUE(at::equal(*values, image.to(type))) << image.sizes();
  }
}

// Forward and backward, by products and by what torch does.
TEST_F(ColumnsCuda, DISABLED_Timing) {
  constexpr int kRuns = 20;
  at::globalContext().setBenchmarkCuDNN(true);
  const ConvGeometry halving{.kernel = {4, 4, 4}, .stride = {2, 2, 2}, .padding = Extent3{1, 1, 1}};
  const ConvGeometry threes{.padding = Extent3{1, 1, 1}};
  const ConvGeometry strided{.stride = {2, 2, 2}, .padding = Extent3{1, 1, 1}};
  const ConvGeometry raising{.stride = {2, 2, 2}, .padding = Extent3{1, 1, 1}, .output_padding = {1, 1, 1}};
  const std::vector<ProductCase> cases{{halving, {64, 64, 64}, 2, 64, 128},
                                       {halving, {32, 32, 32}, 2, 256, 64, 0, at::kBFloat16, true},
                                       {halving, {16, 16, 16}, 2, 256, 512},
                                       {halving, {8, 8, 8}, 2, 512, 512},
                                       {halving, {4, 4, 4}, 2, 512, 512},
                                       {halving, {2, 2, 2}, 2, 512, 512, 0, at::kBFloat16, true},
                                       {halving, {4, 4, 4}, 2, 1024, 512, 0, at::kBFloat16, true},
                                       {halving, {8, 8, 8}, 2, 1024, 256, 0, at::kBFloat16, true},
                                       {halving, {16, 16, 16}, 2, 512, 128, 0, at::kBFloat16, true},
                                       {halving, {64, 64, 64}, 2, 128, 1, 64, at::kBFloat16, true, true, true},
                                       {threes, {8, 8, 8}, 2, 320, 320},
                                       {threes, {4, 4, 4}, 2, 320, 320},
                                       {threes, {7, 7, 7}, 4, 512, 512},
                                       {threes, {14, 14, 14}, 4, 256, 256},
                                       {strided, {112, 112, 112}, 4, 1, 32},
                                       {strided, {14, 14, 14}, 4, 256, 512},
                                       {raising, {56, 56, 56}, 4, 64, 1, 0, at::kBFloat16, true},
                                       {raising, {7, 7, 7}, 4, 768, 128, 0, at::kBFloat16, true}};
  for (const ProductCase& c : cases) {
    const Way way = c.out == 128 && c.in == 64   ? Way::kFolded
                    : c.in == 256 && c.out == 64 ? Way::kFolded
                                                 : Way::kProduct;
    const Operands given = random_operands(c);
    const Tensor direction = channels_last(at::randn_like(by_product(c, given, way)));
    Operands widened = given;
    if (c.full_weights) {
      widened.first = leaf(given.first, at::kFloat);
      if (given.second.defined()) widened.second = leaf(given.second, at::kFloat);
    }
    const auto backward = [&](const Tensor& y, const Operands& from) {
      torch::autograd::grad({y}, from.all(), {direction.to(y.scalar_type())});
    };
    const double forward = cuda::milliseconds_of(kRuns, [&] { by_product(c, given, way); });
    const double both = cuda::milliseconds_of(kRuns, [&] { backward(by_product(c, given, way), given); });
    const double torch_forward = cuda::milliseconds_of(kRuns, [&] { widened.convolved(c); });
    const double torch_both = cuda::milliseconds_of(kRuns, [&] { backward(widened.convolved(c), widened); });
    std::ostringstream name;
    name << (c.transposed ? "up " : "") << c.n << "x" << c.size << " " << c.in << ">" << c.out;
    std::printf("%-28s forward %7.4f (torch %7.4f)  both %7.4f (torch %7.4f) ms\n", name.str().c_str(), forward,
                torch_forward, both, torch_both);
  }
}

}  // namespace
}  // namespace vox::ops
