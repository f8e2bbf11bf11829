// The Hopper convolutions against torch in float64. Outputs are poisoned with NaN before each call, and what lies
// behind them must stay as it was.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "ops/conv3d_cuda_cases.h"

namespace vox::cuda {
namespace {

using namespace testing_conv3d;

struct Forward {
  std::vector<Poisoned> y;
  Poisoned moments;
  int64_t rows;
};
Forward run_forward(const Case& c, const Tensor& weights, bool with_moments) {
  Conv3d conv = c.conv();
  const int64_t rows = conv3d_moment_rows(conv);
  Forward result{{}, Poisoned(c.size.n * rows * 3 * c.out(), at::kFloat), rows};
  for (size_t i = 0; i < c.outputs.size(); ++i) {
    result.y.emplace_back(c.size.voxels() * c.outputs[i], at::kBFloat16);
    conv.output[i].y = result.y[i].all.data_ptr();
  }
  conv3d_forward(conv, weights.data_ptr(), with_moments ? result.moments.all.data_ptr<float>() : nullptr, nullptr);
  return result;
}
Tensor joined(const Forward& forward, const Case& c) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < c.outputs.size(); ++i)
    parts.push_back(forward.y[i].view({c.size.n, c.size.z, c.size.y, c.size.x, c.outputs[i]}));
  return at::cat(parts, 4).permute({0, 4, 1, 2, 3});
}

// partials [n][rows][3][c] of [n, c, z, y, x]
void expect_moments(const Tensor& partials, const Tensor& expected) {
  const Tensor p = partials.to(at::kDouble), count = p.select(2, 0), mean = p.select(2, 1), m2 = p.select(2, 2);
  const Tensor total = count.sum(1);
  const auto voxels = static_cast<double>(expected.size(2) * expected.size(3) * expected.size(4));
  EXPECT_TRUE((total == voxels).all().item<bool>());
  const Tensor got_mean = (count * mean).sum(1) / total;
  const Tensor got_m2 = (m2 + count * (mean - got_mean.unsqueeze(1)).square()).sum(1);
  const Tensor flat = expected.flatten(2), true_mean = flat.mean(2);
  const Tensor true_m2 = (flat - true_mean.unsqueeze(2)).square().sum(2);
  EXPECT_LT(((got_mean - true_mean).abs().max() / flat.abs().max()).item<double>(), 1e-5);
  const double allowed = (1e-4 * true_m2.norm() + 1e-8 * flat.square().sum(2).norm()).item<double>();
  EXPECT_LT((got_m2 - true_m2).norm().item<double>(), allowed);
}

void check_forward(const Case& c, bool with_moments, ConvWay way = ConvWay::kForward) {
  SCOPED_TRACE(testing::Message() << c << (with_moments ? " moments" : ""));
  Tensor weights = way == ConvWay::kForward ? random_weights(c.out(), c.in()) : random_weights(c.in(), c.out());
  const Forward forward = run_forward(c, packed(weights, way), with_moments);
  const Tensor wide = weights.to(at::kDouble).contiguous();
  const Tensor expected = way == ConvWay::kForward ? at::conv3d(c.input(), wide, {}, kOnes, kOnes)
                                                   : at::conv_transpose3d(c.input(), wide, {}, kOnes, kOnes);
  EXPECT_LT(error(joined(forward, c), expected), 4e-3);  // bfloat16 rounds by 1.7e-3 in the mean
  for (const Poisoned& y : forward.y) EXPECT_TRUE(y.untouched_behind());
  EXPECT_TRUE(forward.moments.untouched_behind());
  if (with_moments) expect_moments(forward.moments.view({c.size.n, forward.rows, 3, c.out()}), expected);
}

Tensor run_weight_gradient(const Case& c, const Tensor& dy, Poisoned* workspace) {
  Conv3d conv = c.conv();
  conv.output[0].y = dy.data_ptr();
  const Poisoned dw(27 * c.in() * c.out(), at::kFloat);
  conv3d_weight_gradient(conv, dw.all.data_ptr<float>(), workspace->all.data_ptr(), nullptr);
  EXPECT_TRUE(dw.untouched_behind());
  return dw.view({c.out(), 3, 3, 3, c.in()}).permute({0, 4, 1, 2, 3});
}
void check_weight_gradient(const Case& c) {
  SCOPED_TRACE(testing::Message() << c << " weight gradient");
  const Tensor dy = activation(c.size, c.out());
  Poisoned workspace(conv3d_workspace(c.conv()) / 4, at::kFloat);
  const Tensor got = run_weight_gradient(c, dy, &workspace);
  EXPECT_TRUE(workspace.untouched_behind());
  const Tensor zero = at::zeros({c.out(), c.in(), 3, 3, 3}, on_gpu(at::kDouble));
  const Tensor expected = weight_gradient(c.input(), dy.to(at::kDouble), zero);
  EXPECT_LT(error(got, expected), c.inputs[0].scale.defined() || c.inputs.size() > 1 ? 1e-3 : 1e-4);
}

class Conv3dCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !conv3d_available()) GTEST_SKIP() << "needs a Hopper GPU";
    const uint64_t seed = drawn_seed();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    random_.seed(seed);
    torch::manual_seed(seed);
  }
  int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool coin() { return draw(0, 1) == 1; }
  Size draw_size() {
    if (draw(0, 3) == 0) return {draw(1, 3), draw(1, 3), draw(1, 3), draw(1, 20)};
    return {draw(1, 3), draw(1, side(24)), draw(1, side(40)), draw(1, 2 * side(26))};
  }
  double draw_slope() { return std::vector<double>{0, 0.01, 0.2, 1}[static_cast<size_t>(draw(0, 3))]; }
  // Of one to four blocks of 32 channels, in one tensor or two.
  Case draw_case(int64_t blocks) {
    Case c{.size = draw_size()};
    const int64_t first = blocks == 1 || coin() ? blocks : draw(1, blocks - 1);
    c.inputs.push_back(make_input(c.size, 32 * first, coin(), draw_slope()));
    if (first < blocks) c.inputs.push_back(make_input(c.size, 32 * (blocks - first), coin(), draw_slope()));
    return c;
  }
  std::mt19937_64 random_;
};

TEST_F(Conv3dCuda, ForwardMatchesFloat64) {
  for (int i = 0; i < cases(40); ++i) {
    Case c = draw_case(draw(1, 2));
    c.outputs = {32 * draw(1, 3)};
    if (coin()) c.outputs.push_back(32 * draw(1, 2));
    check_forward(c, coin());
  }
}

TEST_F(Conv3dCuda, ForwardOf128ChannelsMatchesFloat64) {
  for (int i = 0; i < cases(30); ++i) {
    Case c = draw_case(4);
    c.outputs = {32 * draw(1, 4)};
    if (coin()) c.outputs.push_back(32);
    check_forward(c, coin());
  }
}

TEST_F(Conv3dCuda, DataGradientMatchesFloat64) {
  for (int i = 0; i < cases(20); ++i) {
    Case c = draw_case(draw(1, 2));
    c.outputs = {32 * draw(1, 2)};
    if (coin()) c.outputs.push_back(32);
    check_forward(c, false, ConvWay::kGradient);
  }
}

TEST_F(Conv3dCuda, WeightGradientMatchesFloat64) {
  for (int i = 0; i < cases(40); ++i) {
    Case c = draw_case(draw(1, 4));
    c.outputs = {32 * draw(1, 3)};
    check_weight_gradient(c);
  }
}

// Several pieces a block and many blocks a sample.
TEST_F(Conv3dCuda, LargerVolumesMatchFloat64) {
  Case c{.size = {2, 37, 90, 130}};
  c.inputs = {make_input(c.size, 32, true, 0.01), make_input(c.size, 32, false, 1)};
  c.outputs = {32, 32};
  check_forward(c, true);
  c.outputs = {32};
  check_weight_gradient(c);
  c.inputs = {make_input(c.size, 32, true, 0.01)};
  c.outputs = {96};
  check_forward(c, true);
}

Tensor run_first_layer(const Size& s, const Tensor& x, const Tensor& weights, Poisoned* moments) {
  Conv3d conv{s.n, s.z, s.y, s.x};
  conv.input[0] = {x.data_ptr(), 1};
  const Poisoned y(s.voxels() * 32, at::kBFloat16);
  conv.output[0] = {y.all.data_ptr(), 32};
  EXPECT_TRUE(conv3d_first_layer_available(conv));
  if (moments != nullptr) *moments = Poisoned(s.n * conv3d_first_layer_moment_rows(conv) * 96, at::kFloat);
  conv3d_first_layer(conv, weights.data_ptr(), moments != nullptr ? moments->all.data_ptr<float>() : nullptr, nullptr);
  EXPECT_TRUE(y.untouched_behind());
  return y.view({s.n, s.z, s.y, s.x, 32}).permute({0, 4, 1, 2, 3});
}
Tensor run_first_layer_gradient(const Size& s, const Tensor& x, const Tensor& dy) {
  Conv3d conv{s.n, s.z, s.y, s.x};
  conv.input[0] = {x.data_ptr(), 1};
  conv.output[0] = {dy.data_ptr(), 32};
  const Poisoned dw(32 * 27, at::kFloat), workspace(conv3d_first_layer_workspace(conv) / 4, at::kFloat);
  conv3d_first_layer_weight_gradient(conv, dw.all.data_ptr<float>(), workspace.all.data_ptr(), nullptr);
  EXPECT_TRUE(dw.untouched_behind() && workspace.untouched_behind());
  return dw.view({32, 1, 3, 3, 3});
}

TEST_F(Conv3dCuda, FirstLayerMatchesFloat64) {
  for (int i = 0; i < cases(30); ++i) {
    const Size s = i == 0 && !small_tests() ? Size{2, 70, 130, 90} : draw_size();
    SCOPED_TRACE(testing::Message() << s);
    const Tensor x = activation(s, 1), weights = random_weights(32, 1).contiguous();
    const Tensor expected = at::conv3d(x.to(at::kDouble), weights.to(at::kDouble), {}, kOnes, kOnes);
    Poisoned moments(0, at::kFloat);
    const Tensor y = run_first_layer(s, x, weights, &moments);
    EXPECT_LT(error(y, expected), 4e-3);
    EXPECT_TRUE(moments.untouched_behind());
    expect_moments(moments.view({s.n, -1, 3, 32}), expected);
    EXPECT_TRUE(at::equal(y, run_first_layer(s, x, weights, nullptr)));
    const Tensor dy = activation(s, 32);
    const Tensor dw = weight_gradient(x.to(at::kDouble), dy.to(at::kDouble), weights.to(at::kDouble));
    EXPECT_LT(error(run_first_layer_gradient(s, x, dy), dw), 1e-4);
  }
}

// Sums of squares about zero would lose the spread of values around 64 in float32.
TEST_F(Conv3dCuda, MomentsHoldWhereTheMeanIsLarge) {
  const Size s{2, 40, 48, 48};
  Case c{.size = s, .inputs = {{.x = activation(s, 32) + 64}}, .outputs = {32}};
  Tensor weights = at::zeros({32, 3, 3, 3, 32}, on_gpu(at::kBFloat16));
  for (int64_t i = 0; i < 32; ++i) weights[i][1][1][1][i] = 1;
  const Forward forward = run_forward(c, packed(weights.permute({0, 4, 1, 2, 3}), ConvWay::kForward), true);
  expect_moments(forward.moments.view({s.n, forward.rows, 3, 32}), c.input());
  const Tensor x = activation(s, 1) + 64;
  Tensor first = at::zeros({32, 1, 3, 3, 3}, on_gpu(at::kBFloat16));
  for (int64_t i = 0; i < 32; ++i) first[i][0][1][1][1] = 1;
  Poisoned moments(0, at::kFloat);
  run_first_layer(s, x, first, &moments);
  expect_moments(moments.view({s.n, -1, 3, 32}), x.to(at::kDouble).expand({s.n, 32, s.z, s.y, s.x}));
}

// What the loss scale's search for non-finite gradients relies on.
TEST_F(Conv3dCuda, NonFiniteValuesShowInTheResult) {
  const Size s{1, 9, 33, 20};
  for (const double bad : {kNan, HUGE_VAL, -HUGE_VAL})
    for (const bool prologue : {false, true}) {
      SCOPED_TRACE(testing::Message() << bad << (prologue ? " prologue" : ""));
      Case c{.size = s, .inputs = {make_input(s, 64, prologue, 0.01)}, .outputs = {64}};
      const Tensor good = c.inputs[0].x.clone(), dy = activation(s, 64);
      const auto poke = [&](const Tensor& t) { t[0][draw(0, 63)][draw(0, 8)][draw(0, 32)][draw(0, 19)] = bad; };
      poke(c.inputs[0].x);
      const Tensor weights = random_weights(64, 64);
      EXPECT_FALSE(joined(run_forward(c, packed(weights, ConvWay::kForward), true), c).isfinite().all().item<bool>());
      Poisoned workspace(conv3d_workspace(c.conv()) / 4, at::kFloat);
      EXPECT_FALSE(run_weight_gradient(c, dy, &workspace).isfinite().all().item<bool>());
      c.inputs[0].x = good;
      EXPECT_TRUE(run_weight_gradient(c, dy, &workspace).isfinite().all().item<bool>());
      poke(dy);
      EXPECT_FALSE(run_weight_gradient(c, dy, &workspace).isfinite().all().item<bool>());
    }
}

// A race shows in a few launches of a hundred: the same data again and again must give the same bits.
void repeat(const char* name, const std::function<std::vector<Tensor>()>& f) {
  const std::vector<Tensor> first = f();
  Tensor differing = at::zeros({}, on_gpu(at::kLong));
  for (int i = 0; i < launches(); ++i) {
    const std::vector<Tensor> again = f();
    for (size_t k = 0; k < first.size(); ++k) differing += (again[k] != first[k]).any();
  }
  EXPECT_EQ(differing.item<int64_t>(), 0) << name;
}
const Size kStressed{2, side(40), side(72), side(88)};

void repeat_forward(int64_t channels, bool prologue) {
  const Case c{.size = kStressed, .inputs = {make_input(kStressed, channels, prologue, 0.01)}, .outputs = {32}};
  const Tensor weights = packed(random_weights(32, channels), ConvWay::kForward);
  for (const bool moments : {false, true})
    repeat("forward", [&] {
      const Forward forward = run_forward(c, weights, moments);
      std::vector<Tensor> results{joined(forward, c)};
      if (moments) results.push_back(forward.moments.view({-1}));
      return results;
    });
}

TEST_F(Conv3dCuda, RepeatedForwardGivesTheSameBits) {
  for (const bool prologue : {false, true})
    for (const int64_t channels : {32, 64}) repeat_forward(channels, prologue);
}
TEST_F(Conv3dCuda, RepeatedForwardOf128ChannelsGivesTheSameBits) {
  for (const bool prologue : {false, true}) repeat_forward(128, prologue);
}
TEST_F(Conv3dCuda, RepeatedWeightGradientGivesTheSameBits) {
  for (const bool prologue : {false, true}) {
    const Case c{.size = kStressed, .inputs = {make_input(kStressed, 64, prologue, 0.01)}, .outputs = {32}};
    const Tensor dy = activation(kStressed, 32);
    repeat("weight gradient", [&] {
      Poisoned workspace(conv3d_workspace(c.conv()) / 4, at::kFloat);
      return std::vector<Tensor>{run_weight_gradient(c, dy, &workspace)};
    });
  }
}
TEST_F(Conv3dCuda, RepeatedFirstLayerGivesTheSameBits) {
  const Size s = kStressed;
  const Tensor x = activation(s, 1), weights = random_weights(32, 1).contiguous(), dy = activation(s, 32);
  repeat("first layer", [&] {
    Poisoned moments(0, at::kFloat);
    const Tensor y = run_first_layer(s, x, weights, &moments);
    return std::vector<Tensor>{y, moments.view({-1})};
  });
  repeat("first layer's weight gradient", [&] { return std::vector<Tensor>{run_first_layer_gradient(s, x, dy)}; });
}

}  // namespace
}  // namespace vox::cuda
