// The sums for a norm's backward that a data gradient leaves: the kernel against torch in float64 and against the pass
// that it stands for, and the fused path with it against the same layers without.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "kernels/norm_cuda.h"
#include "ops/conv3d_cuda_cases.h"
#include "ops/feature.h"
#include "ops/feature_state.h"

namespace vox::cuda {
namespace {

using namespace testing_conv3d;

// A norm over x and the leaky ReLU after it, as their forward left them.
struct NormOfInput {
  Tensor x, statistics;  // [4, n, c]: mean, rstd, scale, shift
  double slope = 1;
  NormOfInput(const Size& s, int64_t c, double negative_slope)
      : x((activation(s, c) * 2 + 0.5).to(at::kBFloat16)), slope(static_cast<float>(negative_slope)) {
    const Tensor flat = x.to(at::kDouble).flatten(2), mean = flat.mean(2);
    const Tensor rstd = ((flat - mean.unsqueeze(2)).square().mean(2) + 1e-5).rsqrt();
    const Tensor scale = rstd * at::randn({c}, on_gpu(at::kDouble)), shift = at::randn({c}, on_gpu(at::kDouble));
    statistics = at::stack({mean, rstd, scale, shift - mean * scale}).to(at::kFloat).contiguous();
  }
  const float* plane(int64_t i) const { return statistics[i].data_ptr<float>(); }
  Tensor wide(int64_t i) const { return statistics[i].to(at::kDouble).view({x.size(0), x.size(1), 1, 1, 1}); }
  Tensor dz(const Tensor& da) const { return at::where(x.to(at::kDouble) * wide(2) + wide(3) > 0, da, da * slope); }
  Tensor xhat() const { return (x.to(at::kDouble) - wide(0)) * wide(1); }
};

struct SummedCase {
  Case conv;
  std::vector<std::optional<NormOfInput>> norms;  // one an output
};
struct Summed {
  std::vector<Poisoned> y, sums;
  int64_t rows;
  Tensor gradient(const Size& s, size_t i) const {
    return y[i].view({s.n, s.z, s.y, s.x, -1}).permute({0, 4, 1, 2, 3});
  }
};

Summed run_summed(const SummedCase& c, const Tensor& weights, bool with_sums = true) {
  Conv3d conv = c.conv.conv();
  Summed result{{}, {}, conv3d_moment_rows(conv)};
  for (size_t i = 0; i < c.norms.size(); ++i) {
    const int64_t channels = c.conv.outputs[i];
    result.y.emplace_back(c.conv.size.voxels() * channels, at::kBFloat16);
    result.sums.emplace_back(c.conv.size.n * result.rows * 2 * channels, at::kFloat);
    conv.output[i].y = result.y[i].all.data_ptr();
    if (!with_sums || !c.norms[i]) continue;
    const NormOfInput& norm = *c.norms[i];
    conv.output[i].norm = {norm.x.data_ptr(),
                           norm.plane(2),
                           norm.plane(3),
                           norm.plane(0),
                           norm.plane(1),
                           static_cast<float>(norm.slope),
                           result.sums[i].all.data_ptr<float>()};
  }
  conv3d_forward(conv, weights.data_ptr(), nullptr, nullptr);
  return result;
}

// The same by the pass over the gradient, [n, 2, c].
Tensor sums_by_pass(const NormOfInput& norm, const Tensor& da) {
  const Shape5 shape{da.size(0), da.size(2), da.size(3), da.size(4), da.size(1)};
  const Tensor partials = at::empty({shape.n, norm_grad_rows(shape), 2, shape.c}, on_gpu(at::kFloat));
  const auto plane = [&](int64_t i) { return const_cast<float*>(norm.plane(i)); };
  norm_grad_sums({.dy = da.data_ptr(),
                  .x = norm.x.data_ptr(),
                  .shape = shape,
                  .state = {plane(0), plane(1), plane(2), plane(3)},
                  .act = {.kind = ActKind::kLeakyRelu, .slope = static_cast<float>(norm.slope)}},
                 partials.data_ptr<float>(), nullptr);
  return partials.to(at::kDouble).sum(1);
}

// Of the sums' terms, so that it does not matter how far they cancel.
double worst_error(const Tensor& got, const Tensor& expected, const Tensor& magnitude) {
  return ((got - expected).abs() / (magnitude + 1e-30)).max().item<double>();
}

void check_summed(const SummedCase& c) {
  SCOPED_TRACE(testing::Message() << c.conv);
  const Tensor weights = random_weights(c.conv.in(), c.conv.out()), image = packed(weights, ConvWay::kGradient);
  const Summed summed = run_summed(c, image), plain = run_summed(c, image, false);
  const Tensor truth = at::conv_transpose3d(c.conv.input(), weights.to(at::kDouble).contiguous(), {}, kOnes, kOnes);
  int64_t first = 0;
  for (size_t i = 0; i < c.norms.size(); ++i) {
    const int64_t channels = c.conv.outputs[i];
    const Tensor da = summed.gradient(c.conv.size, i);
    EXPECT_LT(error(da, truth.narrow(1, first, channels)), 4e-3);
    first += channels;
    EXPECT_TRUE(at::equal(da, plain.gradient(c.conv.size, i)));
    EXPECT_TRUE(summed.y[i].untouched_behind() && summed.sums[i].untouched_behind());
    if (!c.norms[i]) {
      EXPECT_TRUE(summed.sums[i].all.isnan().all().item<bool>());
      continue;
    }
    const Tensor got = summed.sums[i].view({c.conv.size.n, summed.rows, 2, channels}).to(at::kDouble).sum(1);
    const Tensor dz = c.norms[i]->dz(da.to(at::kDouble)), product = dz * c.norms[i]->xhat();
    const Tensor expected = at::stack({dz.flatten(2).sum(2), product.flatten(2).sum(2)}, 1);
    const Tensor magnitude = at::stack({dz.abs().flatten(2).sum(2), product.abs().flatten(2).sum(2)}, 1);
    EXPECT_LT(worst_error(got, expected, magnitude), 4e-6);
    EXPECT_LT(worst_error(got, sums_by_pass(*c.norms[i], da), magnitude), 4e-6);
  }
}

class NormSumsCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !conv3d_available()) GTEST_SKIP() << "needs a Hopper GPU";
    const uint64_t seed = drawn_seed();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    random_.seed(seed);
    torch::manual_seed(seed);
  }
  int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  Size draw_size() {
    if (draw(0, 3) == 0) return {draw(1, 7), draw(1, 3), draw(1, 3), draw(1, 20)};
    return {draw(1, 7), draw(1, side(24)), draw(1, side(40)), draw(1, 2 * side(26))};
  }
  double draw_slope() { return std::vector<double>{0, 0.01, 0.2, 1}[static_cast<size_t>(draw(0, 3))]; }
  SummedCase draw_case(const Size& size, int64_t in, std::vector<int64_t> out) {
    SummedCase c{{.size = size, .inputs = {make_input(size, in, false, 1)}, .outputs = std::move(out)}, {}};
    const int64_t without = c.conv.outputs.size() > 1 ? draw(0, 2) : 2;  // 2: none of them
    for (size_t i = 0; i < c.conv.outputs.size(); ++i) {
      const bool has_norm = static_cast<int64_t>(i) != without;
      c.norms.push_back(has_norm ? std::optional<NormOfInput>(std::in_place, size, c.conv.outputs[i], draw_slope())
                                 : std::nullopt);
    }
    return c;
  }
  std::mt19937_64 random_;
};

TEST_F(NormSumsCuda, OfOneTensorMatchFloat64) {
  for (int i = 0; i < cases(36); ++i) check_summed(draw_case(draw_size(), int64_t{32} << i % 3, {32 * draw(1, 4)}));
}

TEST_F(NormSumsCuda, OfAConcatenationMatchFloat64) {
  for (int i = 0; i < cases(24); ++i)
    check_summed(draw_case(draw_size(), int64_t{32} << i % 3, {32 * draw(1, 2), 32 * draw(1, 2)}));
}

// Several pieces a block and many blocks a sample.
TEST_F(NormSumsCuda, OfLargerVolumesMatchFloat64) {
  if (small_tests()) GTEST_SKIP() << "small tests alone";
  for (const int64_t in : {32, 64, 128}) check_summed(draw_case({3, 37, 90, 130}, in, {32, 64}));
}

TEST_F(NormSumsCuda, RepeatedLaunchesGiveTheSameBits) {
  const Size s{2, side(40), side(72), side(88)};
  for (const int64_t in : {32, 64, 128}) {
    const SummedCase c = draw_case(s, in, {64});
    const Tensor weights = packed(random_weights(in, 64), ConvWay::kGradient);
    const Summed first = run_summed(c, weights);
    Tensor differing = at::zeros({}, on_gpu(at::kLong));
    for (int i = 0; i < launches(); ++i) {
      const Summed again = run_summed(c, weights);
      differing += (again.gradient(s, 0) != first.gradient(s, 0)).any();
      differing += (again.sums[0].view({-1}) != first.sums[0].view({-1})).any();
    }
    EXPECT_EQ(differing.item<int64_t>(), 0) << in;
  }
}

// What the loss scale's search for non-finite gradients relies on.
TEST_F(NormSumsCuda, ShowNonFiniteGradients) {
  const Size s{1, 9, 33, 20};
  for (const double bad : {kNan, HUGE_VAL}) {
    SummedCase c = draw_case(s, 64, {32});
    c.norms[0]->slope = 0.01f;
    c.conv.inputs[0].x[0][draw(0, 63)][draw(0, 8)][draw(0, 32)][draw(0, 19)] = bad;
    const Summed summed = run_summed(c, packed(random_weights(64, 32), ConvWay::kGradient));
    EXPECT_FALSE(summed.sums[0].view({-1}).isfinite().all().item<bool>()) << bad;
  }
}

}  // namespace
}  // namespace vox::cuda

namespace vox::ops {
namespace {

using at::Tensor;

struct SummedLayer {
  Tensor weight, gamma, beta;
  SummedLayer(int64_t in, int64_t out)
      : weight((at::randn({out, in, 3, 3, 3}) / std::sqrt(27.0 * static_cast<double>(in)))
                   .to(at::kCUDA, at::kBFloat16)
                   .contiguous(at::MemoryFormat::ChannelsLast3d)),
        gamma((1 + 0.3 * at::randn({out})).to(at::kCUDA)),
        beta((0.3 * at::randn({out})).to(at::kCUDA)) {
    for (Tensor* parameter : parameters()) parameter->set_requires_grad(true);
  }
  std::vector<Tensor*> parameters() { return {&weight, &gamma, &beta}; }
  Feature operator()(const Feature& input, NormKind norm) const {
    static const Tensor none;
    Epilogue epilogue;
    epilogue.norm = {.kind = norm, .scale = &gamma, .shift = &beta, .groups = 4, .training = true};
    epilogue.activation = {.kind = Activation::kLeakyRelu, .negative_slope = 0.01};
    return conv(input, {weight, none, {}}, epilogue);
  }
};

const NormBackward& backward_of(const Feature& feature) {
  return *feature.state().deferred->norm;
}

// Gradients of first -> second and of both of them joined -> third. With `shared`, somebody else reads each of them,
// whose gradient is zero: then the norms' sums are passes of their own.
struct SummedNet {
  SummedLayer first{1, 32}, second{32, 32}, third{64, 32};
  std::vector<Tensor> gradients(const Tensor& image, const Tensor& direction, NormKind norm, bool shared) {
    const Feature a = first(Feature::plain(image), norm), b = second(a, norm), c = third(Feature::concat(b, a), norm);
    Tensor loss = (c.materialize() * direction).sum();
    if (shared) loss = loss + 0 * (a.materialize().sum() + b.materialize().sum());
    loss.backward();
    EXPECT_EQ(backward_of(a).readers, shared ? 3 : 2);  // a skip
    EXPECT_EQ(backward_of(a).gradient, nullptr);
    EXPECT_EQ(backward_of(b).readers, shared ? 2 : 1);
    EXPECT_EQ(backward_of(b).gradient != nullptr, !shared);
    EXPECT_FALSE(backward_of(b).sums.defined());  // somebody has used them
    std::vector<Tensor> result;
    for (SummedLayer* layer : {&first, &second, &third})
      for (Tensor* parameter : layer->parameters()) {
        result.push_back(parameter->grad().to(at::kDouble));
        parameter->mutable_grad().reset();
      }
    return result;
  }
};

TEST(NormSumsInNetCuda, GiveTheGradientsOfThePassOfTheirOwn) {
  if (!torch::cuda::is_available() || !cuda::conv3d_available()) GTEST_SKIP() << "needs a Hopper GPU";
  const uint64_t seed = drawn_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  torch::manual_seed(seed);
  for (const NormKind norm : {NormKind::kInstance, NormKind::kBatch, NormKind::kGroup}) {
    const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
    const Tensor image = at::randn({2, 1, 48, 50, 66}, options), direction = at::randn({2, 32, 48, 50, 66}, options);
    SummedNet net;
    const std::vector<Tensor> ours = net.gradients(image, direction, norm, false);
    const std::vector<Tensor> by_pass = net.gradients(image, direction, norm, true);
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_LT(((ours[i] - by_pass[i]).norm() / by_pass[i].norm()).item<double>(), 1e-3) << i;
    EXPECT_TRUE(at::equal(ours[6], by_pass[6]));  // of the third: nothing differs before it
  }
}

}  // namespace
}  // namespace vox::ops
