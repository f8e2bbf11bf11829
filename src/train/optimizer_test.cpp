// Truth: torch's own optimizers, the Keras form written out in double, GradScaler's rules.
#include "train/optimizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "train/ema.h"
#include "train/optimizer_update.h"

namespace vox {
namespace {

constexpr int kSteps = 20;

ParameterSet make_parameters() {
  ParameterSet parameters;
  parameters.add({"conv.weight", ParameterKind::kConvWeight, {8, 4, 3, 3, 3}});
  parameters.add({"conv.bias", ParameterKind::kBias, {8}});
  parameters.add({"large.weight", ParameterKind::kConvWeight, {40, 40, 3, 3, 3}});  // more than one piece
  parameters.add({"cancelled.bias", ParameterKind::kBias, {8}, true});
  torch::manual_seed(3);
  for (Parameter& p : parameters.all()) parameters.load(p.name(), at::randn(p.spec.shape));
  return parameters;
}

at::Tensor gradient(int step, size_t index, at::IntArrayRef shape) {
  torch::manual_seed(static_cast<uint64_t>(100 * step) + index);
  return at::randn(shape);
}

void set_grads(ParameterSet& parameters, int step) {
  for (size_t i = 0; i < 3; ++i) parameters.all()[i].grad = gradient(step, i, parameters.all()[i].spec.shape);
}

TrainingOptions options_for(const std::string& name) {
  TrainingOptions options;
  options.optimizer = name;
  options.weight_decay = 0.1;
  options.clip_norm = 0;
  return options;
}

double lr_at(int step) {
  return 1e-2 / (1 + step);
}

std::vector<at::Tensor> run_ours(const TrainingOptions& options) {
  ParameterSet parameters = make_parameters();
  Optimizer optimizer(options, parameters, Precision::k32);
  for (int step = 0; step < kSteps; ++step) {
    set_grads(parameters, step);
    optimizer.set_lr(lr_at(step));
    optimizer.step();
  }
  EXPECT_EQ(optimizer.count().item<float>(), kSteps);
  std::vector<at::Tensor> weights;
  for (const Parameter& p : parameters.all()) weights.push_back(p.master.detach());
  return weights;
}

template <class TheirOptimizer, class TheirOptions>
std::vector<at::Tensor> run_torch(TheirOptions their_options, double clip = 0) {
  ParameterSet parameters = make_parameters();
  std::vector<at::Tensor> weights;
  for (size_t i = 0; i < 3; ++i) {
    weights.push_back(parameters.all()[i].master.detach().clone().set_requires_grad(true));
  }
  TheirOptimizer optimizer(weights, their_options);
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < 3; ++i) weights[i].mutable_grad() = gradient(step, i, weights[i].sizes());
    if (clip > 0) torch::nn::utils::clip_grad_norm_(weights, clip);
    static_cast<TheirOptions&>(optimizer.param_groups()[0].options()).lr(lr_at(step));
    optimizer.step();
  }
  return weights;
}

void expect_near(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs, const std::string& what) {
  for (size_t i = 0; i < theirs.size(); ++i) {
    const double difference = (ours[i] - theirs[i]).abs().max().item<double>();
    EXPECT_LT(difference, 2e-6) << what << " tensor " << i;  // some ulps of weights near 4
  }
}

TEST(Optimizer, SgdIsTorchs) {
  for (const bool nesterov : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      if (nesterov && momentum == 0) continue;
      TrainingOptions options = options_for("sgd");
      options.momentum = momentum;
      options.nesterov = nesterov;
      const auto theirs = run_torch<torch::optim::SGD>(
          torch::optim::SGDOptions(1).momentum(momentum).nesterov(nesterov).weight_decay(0.1));
      expect_near(run_ours(options), theirs, concat("sgd ", nesterov, momentum));
    }
  }
}

TEST(Optimizer, AdamAndAdamWAreTorchsWithAndWithoutAmsgrad) {
  for (const bool amsgrad : {false, true}) {
    TrainingOptions adam = options_for("adam"), adamw = options_for("adamw");
    adam.amsgrad = adamw.amsgrad = amsgrad;
    expect_near(run_ours(adam),
                run_torch<torch::optim::Adam>(torch::optim::AdamOptions().weight_decay(0.1).amsgrad(amsgrad)), "adam");
    expect_near(run_ours(adamw),
                run_torch<torch::optim::AdamW>(torch::optim::AdamWOptions().weight_decay(0.1).amsgrad(amsgrad)),
                "adamw");
  }
}

TEST(Optimizer, ClippingIsTorchs) {
  TrainingOptions options = options_for("sgd");
  options.clip_norm = 5;
  expect_near(
      run_ours(options),
      run_torch<torch::optim::SGD>(torch::optim::SGDOptions(1).momentum(0.9).nesterov(true).weight_decay(0.1), 5),
      "clipped");
}

TEST(Optimizer, KerasAddsEpsilonBesideTheUncorrectedRoot) {
  TrainingOptions options = options_for("adam");
  options.keras_epsilon = true;
  options.epsilon = 1e-2;  // large, so that its place shows
  options.weight_decay = 0;
  const auto ours = run_ours(options);
  at::Tensor weight = make_parameters().all()[1].master.detach().to(at::kDouble);
  at::Tensor m = at::zeros_like(weight), v = at::zeros_like(weight);
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor g = gradient(step, 1, weight.sizes()).to(at::kDouble);
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    const double rate = lr_at(step) * std::sqrt(1 - std::pow(0.999, step + 1)) / (1 - std::pow(0.9, step + 1));
    weight = weight - rate * m / (v.sqrt() + 1e-2);
  }
  EXPECT_LT((ours[1] - weight).abs().max().item<double>(), 2e-6);
}

TEST(Optimizer, DecayCanSpareNormsAndBiasesAndNeverTouchesACancelledBias) {
  TrainingOptions options = options_for("adamw");
  options.decay_norms_and_biases = false;
  const auto spared = run_ours(options);
  options.weight_decay = 0;
  const auto none = run_ours(options);
  EXPECT_TRUE(at::equal(spared[1], none[1]));
  EXPECT_FALSE(at::equal(spared[0], none[0]));
  EXPECT_TRUE(at::equal(spared[3], make_parameters().all()[3].master));
}

TEST(Optimizer, AScaledLossChangesOnlyTheScaleAndShadowsFollowTheWeights) {
  for (const std::string name : {"sgd", "adam", "adamw"}) {
    TrainingOptions options = options_for(name);
    options.amsgrad = name == "adam";
    options.clip_norm = 100;
    options.ema = 0.9;
    ParameterSet plain = make_parameters(), scaled = make_parameters();
    scaled.set_compute_type(at::kBFloat16);
    Optimizer a(options, plain, Precision::k32), b(options, scaled, Precision::k16Mixed);
    for (int step = 0; step < 6; ++step) {
      const bool bad = step == 3;
      set_grads(scaled, step);
      for (size_t i = 0; i < 3; ++i) scaled.all()[i].grad.mul_(b.loss_scale());
      if (bad) scaled.all()[0].grad.view(-1)[5] = std::numeric_limits<float>::infinity();
      b.set_lr(1e-2);
      b.step();
      EXPECT_EQ(b.found_inf().item<float>(), bad ? 1 : 0);
      EXPECT_EQ(b.loss_scale().item<float>(), step < 3 ? kFirstLossScale : kFirstLossScale / 2);
      if (bad) continue;
      set_grads(plain, step);
      a.set_lr(1e-2);
      a.step();
      EXPECT_NEAR(a.grad_norm().item<float>(), b.grad_norm().item<float>(), 1e-3);
    }
    EXPECT_EQ(b.count().item<float>(), 5);
    EXPECT_EQ(b.bad_steps().item<float>(), 1);
    for (size_t i = 0; i < 3; ++i) {
      const Parameter &p = plain.all()[i], &q = scaled.all()[i];
      EXPECT_TRUE(at::allclose(p.master, q.master, 1e-6, 1e-6)) << name << i;
      EXPECT_TRUE(at::allclose(p.ema, q.ema, 1e-6, 1e-6)) << name << i;
      EXPECT_TRUE(at::equal(q.value, q.master.to(at::kBFloat16))) << name << i;
    }
  }
}

TEST(Optimizer, ABadStepChangesNothingButTheCountsOfBadSteps) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    TrainingOptions options = options_for("adamw");
    options.ema = 0.9;
    options.clip_norm = 1;
    ParameterSet parameters = make_parameters();
    Optimizer optimizer(options, parameters, Precision::k32);
    optimizer.set_lr(1e-2);
    set_grads(parameters, 0);
    optimizer.step();
    std::vector<at::Tensor> before;
    for (const auto& [name, tensor] : optimizer.state()) before.push_back(tensor.clone());
    for (const Parameter& p : parameters.all()) before.push_back(p.master.detach().clone());
    for (const Parameter& p : parameters.all()) before.push_back(p.ema.clone());
    set_grads(parameters, 1);
    parameters.all()[2].grad.view(-1)[40000] = bad;
    optimizer.step();
    std::vector<at::Tensor> after;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : optimizer.state()) {
      after.push_back(tensor);
      names.push_back(name);
    }
    for (const Parameter& p : parameters.all()) after.push_back(p.master.detach());
    for (const Parameter& p : parameters.all()) after.push_back(p.ema);
    for (size_t i = 0; i < before.size(); ++i) {
      const bool counts = i < names.size() && names[i].rfind("bad_", 0) == 0;
      EXPECT_EQ(at::equal(before[i], after[i]), !counts) << i;
    }
    EXPECT_EQ(optimizer.bad_in_a_row().item<float>(), 1);
    set_grads(parameters, 2);
    optimizer.step();
    EXPECT_EQ(optimizer.bad_in_a_row().item<float>(), 0);
    EXPECT_EQ(optimizer.bad_steps().item<float>(), 1);
    EXPECT_EQ(optimizer.count().item<float>(), 2);
  }
}

TEST(Optimizer, WeightsDoNotDependOnTheNumberOfThreads) {
  TrainingOptions options = options_for("adamw");
  options.clip_norm = 1;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = run_ours(options);
  at::set_num_threads(3);
  const auto three = run_ours(options);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], three[i])) << i;
}

TEST(Ema, AveragesAndGivesTheWeightsBackBitForBit) {
  TrainingOptions options = options_for("sgd");
  options.ema = 0.75;
  ParameterSet parameters = make_parameters();
  Optimizer optimizer(options, parameters, Precision::k32);
  const at::Tensor start = parameters.all()[0].master.detach().clone();
  set_grads(parameters, 0);
  optimizer.set_lr(0.1);
  optimizer.step();
  const at::Tensor moved = parameters.all()[0].master.detach().clone();
  const at::Tensor expected = 2.0 / 11 * start + 9.0 / 11 * moved;  // the first step of the warm-up
  {
    const EmaScope scope(parameters);
    EXPECT_TRUE(at::allclose(parameters.all()[0].master, expected, 1e-6, 1e-6));
  }
  EXPECT_TRUE(at::equal(parameters.all()[0].master, moved));
}

// Weights that fall by 1 at every step, and the average of them written out: no first weight but its own share is left.
void expect_a_written_out_average(double warm_up) {
  TrainingOptions options = options_for("sgd");
  options.momentum = 0;
  options.weight_decay = 0;
  options.ema = 0.8;  // with a warm-up of 9 from the 36th step on; (1 + t) / (10 + t) before
  options.ema_warmup = warm_up;
  ParameterSet parameters;
  parameters.add({"a", ParameterKind::kBias, {1}});
  parameters.all()[0].master.detach().fill_(100);
  Optimizer optimizer(options, parameters, Precision::k32);
  optimizer.set_lr(1);
  double average = 100;
  for (int t = 1, step = 0; t <= 60; ++step) {
    const bool bad = step % 7 == 3;
    parameters.all()[0].grad = at::full({1}, bad ? std::numeric_limits<float>::infinity() : 1.0f);
    optimizer.step();
    if (bad) continue;  // it counts for nothing
    const double decay = std::min(0.8, (1.0 + t) / (1.0 + warm_up + t));
    average = decay * average + (1 - decay) * (100 - t);
    EXPECT_NEAR(parameters.all()[0].ema.item<float>(), average, 1e-3) << t;
    ++t;
  }
}

TEST(Ema, WarmsUpWithTheStepsThatCounted) {
  for (const double warm_up : {9.0, 2.5, 0.0}) expect_a_written_out_average(warm_up);
}

TEST(Optimizer, TheLossScaleGrowsAfterTwoThousandGoodSteps) {
  ParameterSet parameters;
  parameters.add({"a", ParameterKind::kBias, {2}});
  Optimizer optimizer(options_for("sgd"), parameters, Precision::k16Mixed);
  EXPECT_EQ(optimizer.scaled(at::ones({})).item<float>(), kFirstLossScale);
  for (int step = 0; step < kScaleGrowthInterval; ++step) {
    parameters.all()[0].grad = at::ones({2});
    EXPECT_EQ(optimizer.loss_scale().item<float>(), kFirstLossScale);
    optimizer.step();
  }
  EXPECT_EQ(optimizer.loss_scale().item<float>(), 2 * kFirstLossScale);
}

TEST(Precision, NamesAreParsed) {
  EXPECT_EQ(parse_precision("bf16-mixed"), Precision::kBf16Mixed);
  EXPECT_EQ(parse_precision("amp"), Precision::k16Mixed);
  EXPECT_THROW(parse_precision("8"), Error);
}

}  // namespace
}  // namespace vox
