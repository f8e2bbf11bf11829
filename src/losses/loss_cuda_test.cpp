// Truth: the same set of terms on the CPU in float64, which loss_test.cpp compares with closed forms and torch's own.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <random>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "base/error.h"
#include "losses/loss.h"
#include "ops/device.h"
#include "ops/loss_ops.h"

namespace vox {
namespace {

bool skip() {
  return !torch::cuda::is_available();
}

class Draw {
 public:
  explicit Draw(int64_t seed) : random_(static_cast<uint64_t>(seed)) {}
  bool coin() { return random_() % 2 == 0; }
  int64_t from(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  double real(double low, double high) { return low + (high - low) * static_cast<double>(random_() % 1000) / 1000; }

 private:
  std::mt19937_64 random_;
};

Tree scalar(const std::string& value) {
  Tree tree;
  tree.kind = Tree::Kind::kScalar;
  tree.scalar = value;
  return tree;
}
Tree flag(bool value) {
  return scalar(value ? "true" : "false");
}
Tree numbers(Draw& draw, int64_t count) {
  Tree tree;
  tree.kind = Tree::Kind::kList;
  for (int64_t i = 0; i < count; ++i) tree.items.push_back(scalar(concat(draw.real(0.2, 2))));
  return tree;
}

LossTerm term(Draw& draw, const std::string& name, const std::vector<std::pair<std::string, Tree>>& params = {}) {
  LossTerm result;
  result.name = name;
  result.weight = draw.real(0.1, 2);
  result.deep_supervision = draw.from(0, 3) != 0;
  result.params.kind = Tree::Kind::kMap;
  result.params.members = params;
  return result;
}

struct Case {
  LossOptions loss;
  DataOptions data;
  int64_t channels = 1;
  Targets targets;
  std::vector<at::Tensor> logits;  // float64
  std::string text;
};

void draw_terms(Draw& draw, Case& c) {
  const bool regression = c.data.target == "regression", partial = c.targets.mask.defined();
  const auto add = [&](const LossTerm& one) {
    c.loss.terms.push_back(one);
    c.text += " " + one.name;
  };
  if (regression) {
    if (draw.coin()) add(term(draw, "mae"));
    if (partial && draw.coin()) add(term(draw, "masked_mae", {{"target_weight", scalar(draw.coin() ? "0" : "0.7")}}));
    if (draw.coin() || c.loss.terms.empty()) add(term(draw, "mse"));
    return;
  }
  const std::vector<std::pair<std::string, Tree>> region{
      {"batch", flag(draw.coin())}, {"background", flag(draw.coin())}, {"smooth", scalar(draw.coin() ? "1e-5" : "1")}};
  if (draw.from(0, 2) > 0) add(term(draw, draw.coin() ? "dice" : "tversky", region));
  if (c.loss.terms.size() == 1 && c.loss.terms[0].name == "tversky") {
    c.loss.terms[0].params.members.emplace_back("alpha", scalar("0.3"));
    c.loss.terms[0].params.members.emplace_back("beta", scalar("0.9"));
  }
  if (c.channels > 1 && draw.from(0, 2) > 0) {
    const bool weighted = draw.coin();
    if (weighted) add(term(draw, "cross_entropy", {{"class_weights", numbers(draw, c.channels)}}));
    if (!weighted) add(term(draw, "cross_entropy"));
  }
  if (draw.coin() || c.loss.terms.empty())
    add(term(draw, "bce",
             {{"pos_weight", scalar(draw.coin() ? "1" : "3")}, {"class_weights", numbers(draw, c.channels)}}));
}

void draw_labels(Draw& draw, Case& c, const std::vector<int64_t>& shape) {
  const at::ScalarType types[] = {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong};
  const at::ScalarType type = types[draw.from(0, 4)];
  at::Tensor label = at::randint(0, std::max<int64_t>(2, c.channels), shape, at::kLong);
  if (c.channels > 1 && draw.coin()) {  // label values that are no count
    for (int64_t i = 0; i < c.channels; ++i) c.data.labels.push_back(7 * i);
    label = label * 7;
  }
  if (draw.coin()) {
    c.data.ignore_label = 126;
    label.index_put_({at::rand(shape) < draw.real(0, 0.9)}, 126);
  }
  c.targets.label = label.to(type);
  c.text += concat(" labels ", type, " ignore ", c.data.ignore_label);
}

Case draw_case(int64_t seed) {
  Draw draw(seed);
  torch::manual_seed(static_cast<uint64_t>(seed));
  Case c;
  const int64_t n = draw.from(1, 4);
  const bool round = draw.coin();  // sizes that vectors of four fit, or any
  std::vector<int64_t> size;
  for (int axis = 0; axis < 3; ++axis) size.push_back(round ? 4 * draw.from(1, 8) : draw.from(3, 29));
  c.channels = draw.coin() ? draw.from(1, 3) : draw.from(4, 16);
  std::vector<int64_t> shape{n, 1, size[0], size[1], size[2]};
  if (draw.coin()) c.targets.mask = at::randint(0, 2, shape, draw.coin() ? at::kByte : at::kBool);
  if (draw.from(0, 3) == 0) {
    c.data.target = "regression";
    c.data.mask = c.targets.mask.defined() ? "mask" : "";
    shape[1] = c.channels;
    c.targets.label = draw.coin() ? at::randn(shape) : at::randint(-5, 6, shape, at::kShort);
  } else {
    draw_labels(draw, c, shape);
  }
  draw_terms(draw, c);
  for (int64_t head = 0, heads = draw.from(1, 4); head < heads; ++head) {
    std::vector<int64_t> own{n, c.channels};
    for (const int64_t s : size) own.push_back(head == 0 ? s : std::max<int64_t>(1, (s >> head) + draw.from(0, 1)));
    for (size_t i = 2; i < 5; ++i) own[i] = std::min(own[i], size[i - 2]);
    c.logits.push_back(at::randn(own, at::kFloat).mul_(draw.coin() ? 3 : 12).to(at::kDouble));
  }
  c.text += concat(" channels ", c.channels, " shape ", at::IntArrayRef(shape), " heads ", c.logits.size(), " mask ",
                   c.targets.mask.defined());
  return c;
}

using NodePointer = std::remove_cvref_t<decltype(std::declval<at::Tensor>().grad_fn())>;  // torch's own since 2.13

struct Outcome {
  LossResult result;
  NodePointer fn;
  std::vector<at::Tensor> grads;
};

Outcome outcome(const Case& c, const at::TensorOptions& options) {
  Targets targets = c.targets;
  for (at::Tensor* tensor : {&targets.label, &targets.mask})
    if (tensor->defined()) *tensor = tensor->to(options.device());
  std::vector<at::Tensor> logits;
  for (const at::Tensor& one : c.logits) logits.push_back(one.to(options).clone().set_requires_grad(true));
  Outcome got{LossSet(c.loss, c.data, c.channels).compute(logits, targets, 0), nullptr, {}};
  got.fn = got.result.total.grad_fn();
  got.result.total.backward();
  for (const at::Tensor& one : logits) got.grads.push_back(one.grad());
  return got;
}

at::TensorOptions gpu() {
  return at::TensorOptions(at::kFloat).device(at::kCUDA);
}

// 1e-5, and a floor where everything is saturated and float32 itself has no more digits.
double relative(const at::Tensor& got, const at::Tensor& expected, double floor = 1e-2) {
  const at::Tensor a = got.detach().to(at::kCPU, at::kDouble), b = expected.detach().to(at::kCPU, at::kDouble);
  return ((a - b).norm() / (b.norm() + floor)).item<double>();
}

bool is_fused(const NodePointer& node) {
  if (!node) return false;
  if (node->name().find("FusedLosses") != std::string::npos) return true;
  for (const auto& edge : node->next_edges())
    if (is_fused(edge.function)) return true;
  return false;
}

TEST(FusedLoss, EqualsTheTermsInFloat64) {
  if (skip()) GTEST_SKIP() << "no GPU";
  const int64_t start = drawn_seed();
  for (int64_t seed = start; seed < start + cuda::cases(120); ++seed) {
    const Case c = draw_case(seed);
    SCOPED_TRACE(concat("seed ", seed, ":", c.text));
    const Outcome expected = outcome(c, at::kDouble), got = outcome(c, gpu());
    const bool means = c.data.target == "regression" && c.logits.size() > 1;  // of values, which no kernel takes
    EXPECT_EQ(is_fused(got.fn), !means);
    EXPECT_LT(relative(got.result.total, expected.result.total), 1e-5);
    for (size_t i = 0; i < got.result.terms.size(); ++i)
      EXPECT_LT(relative(*got.result.terms[i].second, *expected.result.terms[i].second), 1e-5)
          << got.result.terms[i].first;
    for (size_t i = 0; i < got.grads.size(); ++i) {
      ASSERT_EQ(got.grads[i].defined(), expected.grads[i].defined()) << i;
      if (!got.grads[i].defined()) continue;
      EXPECT_LT(relative(got.grads[i], expected.grads[i], 3e-3), 1e-5) << i;
      EXPECT_EQ(got.grads[i].sizes(), c.logits[i].sizes());
    }
    if (HasFailure()) return;
  }
}

Case plain_case(int64_t channels, const std::vector<int64_t>& shape) {
  Case c;
  torch::manual_seed(5);
  c.channels = channels;
  Draw draw(1);
  c.loss.terms = {term(draw, "dice"), term(draw, channels > 1 ? "cross_entropy" : "bce")};
  for (LossTerm& one : c.loss.terms) one.deep_supervision = true;
  c.targets.label = at::randint(0, 2, {shape[0], 1, shape[1], shape[2], shape[3]}, at::kByte);
  c.logits = {at::randn({shape[0], channels, shape[1], shape[2], shape[3]}, at::kDouble)};
  return c;
}

TEST(FusedLoss, IsFiniteAtTheEdgesAndSeesWhatIsNoNumber) {
  if (skip()) GTEST_SKIP() << "no GPU";
  for (const int64_t channels : {1, 2, 5}) {
    for (const int64_t label : {0, 1, 9}) {
      for (const double logit : {0.0, 1e4, -1e4}) {
        Case c = plain_case(channels, {2, 4, 5, 8});
        c.data.ignore_label = 9;
        c.targets.label.fill_(label);
        c.logits[0].fill_(logit);
        const Outcome got = outcome(c, gpu());
        EXPECT_TRUE(at::isfinite(got.result.total).item<bool>()) << channels << " " << label << " " << logit;
        EXPECT_TRUE(at::isfinite(got.grads[0]).all().item<bool>()) << channels << " " << label << " " << logit;
      }
    }
    Case c = plain_case(channels, {1, 4, 4, 4});
    c.logits[0].view(-1)[3] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(at::isnan(outcome(c, gpu()).result.total).item<bool>());
    c.data.ignore_label = 9;  // but not where voxels do not count
    c.targets.label.view(-1)[3] = 9;
    const Outcome got = outcome(c, gpu());
    EXPECT_TRUE(at::isfinite(got.result.total).item<bool>());
    EXPECT_TRUE(at::isfinite(got.grads[0]).all().item<bool>());
  }
}

TEST(FusedLoss, ATermOfAnotherKindIsAddedToTheFusedOnes) {
  if (skip()) GTEST_SKIP() << "no GPU";
  Case c = plain_case(1, {2, 8, 8, 8});
  Draw draw(2);
  c.loss.terms.push_back(term(draw, "focal"));
  c.loss.terms.push_back(term(draw, "dice"));  // a second one of a kind
  const Outcome expected = outcome(c, at::kDouble), got = outcome(c, gpu());
  EXPECT_LT(relative(got.result.total, expected.result.total), 1e-5);
  EXPECT_LT(relative(got.grads[0], expected.grads[0], 3e-3), 1e-5);
}

TEST(FusedLoss, GivesTheSameBitsEveryTime) {
  if (skip()) GTEST_SKIP() << "no GPU";
  for (const int64_t channels : {1, 3}) {
    const std::vector<int64_t> size{cuda::side(40), cuda::side(41), cuda::side(44)};
    Case c = plain_case(channels, {2, size[0], size[1], size[2]});
    c.logits.push_back(at::randn({2, channels, size[0] / 2, size[1] / 2, size[2] / 2}, at::kDouble));
    const Outcome first = outcome(c, gpu());
    for (int run = 0; run < cuda::launches(); ++run) {
      const Outcome again = outcome(c, gpu());
      ASSERT_TRUE(at::equal(again.result.total, first.result.total)) << run;
      for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(at::equal(again.grads[i], first.grads[i])) << run;
    }
  }
}

template <class Work>
double microseconds_of(const Work& work) {
  for (int i = 0; i < 5; ++i) work();
  torch::cuda::synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) work();
  torch::cuda::synchronize();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / 200;
}

void time_kernels(const std::string& what, cuda::LossGroup group, const std::vector<int64_t>& shape, int64_t heads) {
  std::vector<at::Tensor> logits, grads;
  cuda::LossProblem problem;
  problem.group = group;
  problem.form = group == cuda::LossGroup::kSoftmax   ? cuda::TargetForm::kClass
                 : group == cuda::LossGroup::kSigmoid ? cuda::TargetForm::kAboveZero
                                                      : cuda::TargetForm::kValue;
  problem.samples = shape[0];
  problem.channels = static_cast<int>(shape[1]);
  for (float& weight : problem.class_weight) weight = 1;
  problem.scales = static_cast<int>(heads);
  for (int64_t i = 0; i < heads; ++i) {
    logits.push_back(at::randn({shape[0], shape[1], shape[2] >> i, shape[3] >> i, shape[4] >> i}, gpu()));
    grads.push_back(at::empty_like(logits.back()));
    cuda::LossScale& scale = problem.scale[i];
    scale.logits = logits.back().data_ptr<float>(), scale.dlogits = grads.back().data_ptr<float>();
    scale.z = static_cast<int>(shape[2] >> i), scale.y = static_cast<int>(shape[3] >> i);
    scale.x = static_cast<int>(shape[4] >> i);
    for (int t = 0; t < 2; ++t) scale.value_weight[t] = scale.total_weight[t] = 1;
  }
  problem.z = problem.scale[0].z, problem.y = problem.scale[0].y, problem.x = problem.scale[0].x;
  const bool values = group == cuda::LossGroup::kValues;
  const at::Tensor label =
      at::randint(0, 2, {shape[0], 1, shape[2], shape[3], shape[4]}, gpu()).to(values ? at::kFloat : at::kByte);
  problem.target = {label.data_ptr(), values ? cuda::Element::kFloat32 : cuda::Element::kUInt8};
  const at::Tensor result = at::ones({8}, gpu());
  const at::Tensor workspace = at::empty({cuda::loss_workspace(problem)}, gpu().dtype(at::kByte));
  const cuda::Stream stream = ops::current_stream(result);
  float* numbers = result.data_ptr<float>();
  const double forward =
      microseconds_of([&] { cuda::loss_forward(problem, {numbers, numbers + 1}, workspace.data_ptr(), stream); });
  const double backward =
      microseconds_of([&] { cuda::loss_backward(problem, numbers + 7, workspace.data_ptr(), stream); });
  std::printf("%s: forward %.1f us, backward %.1f us\n", what.c_str(), forward, backward);
  EXPECT_LT(forward + backward, 1000);
}

TEST(FusedLoss, TakesLittleMoreThanTheMovedBytesNeed) {
  if (skip()) GTEST_SKIP() << "no GPU";
  time_kernels("dice + cross entropy 2x2x128^3", cuda::LossGroup::kSoftmax, {2, 2, 128, 128, 128}, 1);
  time_kernels("dice + cross entropy 2x2x128^3, 5 heads", cuda::LossGroup::kSoftmax, {2, 2, 128, 128, 128}, 5);
  time_kernels("dice + cross entropy 7x3x128^3", cuda::LossGroup::kSoftmax, {7, 3, 128, 128, 128}, 1);
  time_kernels("dice + bce 2x1x72x136x136, 4 heads", cuda::LossGroup::kSigmoid, {2, 1, 72, 136, 136}, 4);
  time_kernels("dice + bce 4x1x112^3", cuda::LossGroup::kSigmoid, {4, 1, 112, 112, 112}, 1);
  time_kernels("mae 2x1x128^3", cuda::LossGroup::kValues, {2, 1, 128, 128, 128}, 1);
  Case c = plain_case(2, {2, 128, 128, 128});
  const at::Tensor logits = c.logits[0].to(gpu()).set_requires_grad(true);
  Targets targets{.label = c.targets.label.to(at::kCUDA), .mask = {}, .image = {}, .extra = {}};
  const LossSet losses(c.loss, c.data, 2);
  const double whole = microseconds_of([&] {
    logits.mutable_grad().reset();
    losses.compute({logits}, targets, 0).total.backward();
  });
  std::printf("through autograd, 2x2x128^3: %.1f us\n", whole);
}

}  // namespace
}  // namespace vox
