// Steps as CUDA graphs against the same steps run eagerly: the same kernels, so the same bits.
#include <ATen/DeviceAccelerator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "base/cuda_test_effort.h"
#include "base/error.h"
#include "base/span.h"
#include "ops/device.h"
#include "train/ema.h"
#include "train/learner.h"
#include "train/step.h"

namespace vox {
namespace {

struct Recipe {
  std::string name;
  Options options;
  int64_t channels = 1, accumulation = 1;
};

LossTerm term_of(const std::string& name, int64_t every = 1) {
  LossTerm term;
  term.name = name;
  term.every = every;
  return term;
}

LossTerm with(LossTerm term, const std::string& option, const std::string& value) {
  term.params.kind = Tree::Kind::kMap;
  term.params.members.emplace_back(option, Tree{});
  term.params.members.back().second.kind = Tree::Kind::kScalar;
  term.params.members.back().second.scalar = value;
  return term;
}

Options small_unet() {
  Options options;
  options.data.patch_size = {16, 24, 32};
  options.data.batch_size = 2;
  options.model.filters = {8, 16, 24};
  options.model.out_channels = 2;
  options.model.deep_supervision = true;
  options.loss.terms = {term_of("dice"), term_of("cross_entropy")};
  options.training.precision = "bf16-mixed";
  options.training.deterministic = true;
  return options;
}

std::vector<Recipe> recipes() {
  std::vector<Recipe> all;
  all.push_back({"unet, AdamW", small_unet()});
  Recipe sgd{"float32, SGD, an average, a rare term", small_unet()};
  sgd.options.training.precision = "32";
  sgd.options.training.optimizer = "sgd";
  sgd.options.training.ema = 0.9;
  sgd.options.loss.terms = {term_of("dice", 2), term_of("cross_entropy", 3)};
  sgd.options.loss.terms[0].deep_supervision = false;
  sgd.options.loss.deep_supervision_weights = {1, 0};
  all.push_back(sgd);
  Recipe summed{"16-mixed, three micro-batches", small_unet()};
  summed.options.training.precision = "16-mixed";
  summed.accumulation = 3;
  all.push_back(summed);
  Recipe dropped{"batch norm and dropout", small_unet(), /*channels=*/3};
  dropped.options.data.patch_size = {32, 32, 32};
  dropped.options.data.target = "regression";
  dropped.options.model = {};
  dropped.options.model.architecture = "monai_unet";
  dropped.options.model.filters = {8, 16, 32};
  dropped.options.model.dropout = 0.3;
  dropped.options.model.out_channels = 1;
  dropped.options.loss.terms = {term_of("mae")};
  dropped.options.training.optimizer = "adam";
  all.push_back(dropped);
  Recipe recomputed{"activation checkpointing", small_unet()};
  recomputed.options.model.use_checkpoint = true;
  recomputed.options.model.dropout = 0;
  all.push_back(recomputed);
  Recipe late{"a term with a delay, two micro-batches", small_unet()};
  late.options.loss.terms.push_back(with(term_of("topology", 4), "delay", "2"));
  late.accumulation = 2;
  all.push_back(late);
  return all;
}

class Trained {
 public:
  Trained(const Recipe& recipe, const std::string& cuda_graph, uint64_t dropout_seed = 5) : recipe_(recipe) {
    const Options& options = recipe.options;
    choose_kernels(options.training);
    const ModelOptions model = resolve_model(options, recipe.channels, {0, 1});
    network_ = make_network_on(at::Device(at::kCUDA, 0), model, options.training);
    loss_ = std::make_unique<LossSet>(options.loss, options.data, model.out_channels, model.heads);
    optimizer_ = std::make_unique<Optimizer>(options.training, network_->parameters(),
                                             parse_precision(options.training.precision));
    runner_ = std::make_unique<StepRunner>(
        StepRunner::Parts{*network_, *loss_, *optimizer_, [this](StageTimes&) { return next_batch(); }},
        StepRunner::Settings{.seed = dropout_seed,
                             .accumulation = recipe.accumulation,
                             .cuda_graph = cuda_graph,
                             .no_graph = why_not_captured(options)});
  }

  void run(int64_t steps) {
    for (const int64_t end = step_ + steps; step_ < end; ++step_)
      reports_.push_back(runner_->run(step_, 1e-2 / static_cast<double>(step_ + 1)).values);
  }
  void look_at_average() {  // as a validation does, in between
    const EmaScope averaged(network_->parameters());
    const at::NoGradGuard no_grad;
    network_->forward(next_batch().image);
    --batch_;
  }
  bool captured() const { return runner_->captured(); }
  void time_terms() { loss_->time_terms(at::Device(at::kCUDA, 0)); }
  // Milliseconds of each term in the next steps, all of them together.
  std::vector<double> times_of(int64_t steps) {
    const at::Tensor before = loss_->term_nanoseconds().cpu();
    run(steps);
    const at::Tensor spent = (loss_->term_nanoseconds().cpu() - before).to(at::kDouble) * 1e-6;
    return {spent.const_data_ptr<double>(), spent.const_data_ptr<double>() + spent.numel()};
  }
  at::Tensor weights() const {
    std::vector<at::Tensor> all;
    for (const Parameter& parameter : network_->parameters().all())
      if (is_trained(parameter.spec.kind)) all.push_back(parameter.master.detach().flatten().to(at::kDouble));
    return at::cat(all);
  }
  std::vector<std::pair<std::string, at::Tensor>> all() const {
    std::vector<std::pair<std::string, at::Tensor>> result = optimizer_->state();
    for (const Parameter& parameter : network_->parameters().all()) {
      result.emplace_back(parameter.name(), parameter.master);
      result.emplace_back(parameter.name() + " as read", parameter.value);
      if (parameter.ema.defined()) result.emplace_back(parameter.name() + " average", parameter.ema);
    }
    result.emplace_back("reports", at::nan_to_num(at::stack(reports_), -1));
    return result;
  }

 private:
  DeviceBatch next_batch() {
    const int64_t number = batch_++;
    const DataOptions& data = recipe_.options.data;
    const at::Generator source = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number % 5 + 1));
    const auto values = [&](int64_t channels) {
      return at::randn({data.batch_size, channels, data.patch_size.z, data.patch_size.y, data.patch_size.x}, source);
    };
    DeviceBatch batch;
    batch.image = values(recipe_.channels).to(at::kCUDA);
    const at::Tensor label = values(1).to(at::kCUDA);
    batch.targets.label = data.target == "regression" ? label : label.gt(0.5).to(at::kByte);
    batch.samples.resize(static_cast<size_t>(data.batch_size));
    batch.samples.front().sample = number * data.batch_size;
    return batch;
  }

  Recipe recipe_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<LossSet> loss_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepRunner> runner_;
  std::vector<at::Tensor> reports_;
  int64_t step_ = 0, batch_ = 0;
};

TEST(GraphStep, EqualsEagerSteps) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    Trained eager(recipe, "off"), graph(recipe, "on");
    graph.time_terms();  // which changes nothing
    for (Trained* one : {&eager, &graph}) {
      one->run(11);
      one->look_at_average();
      one->run(9);
    }
    EXPECT_FALSE(eager.captured());
    EXPECT_TRUE(graph.captured());
    const auto expected = eager.all(), found = graph.all();
    ASSERT_EQ(expected.size(), found.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor &a = expected[i].second, &b = found[i].second;
      EXPECT_TRUE(at::equal(a, b)) << expected[i].first << ": largest difference "
                                   << (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
    }
  }
}

// What the steps changed in the weights.
at::Tensor learnt(Trained& trained, int64_t steps) {
  const at::Tensor before = trained.weights();
  trained.run(steps);
  return trained.weights() - before;
}

// Some gradients of this network are sums whose order cuDNN chooses anew: the same steps but for rounding. Dropout
// drops whole channels, so that steps with other masks are far apart.
TEST(GraphStep, OfOpenKbpIsNearItsEagerSteps) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  Recipe recipe{"openkbp", {}, /*channels=*/11};
  recipe.options.data.patch_size = {64, 64, 64};
  recipe.options.data.batch_size = 2;
  recipe.options.data.target = "regression";
  recipe.options.model.architecture = "openkbp_unet";
  recipe.options.model.filters = {8};
  recipe.options.model.out_channels = 1;
  recipe.options.loss.terms = {term_of("mae")};
  recipe.options.training.precision = "bf16-mixed";
  recipe.options.training.optimizer = "sgd";
  recipe.options.training.deterministic = true;
  Trained eager(recipe, "off"), graph(recipe, "on"), other_masks(recipe, "off", /*dropout_seed=*/6);
  constexpr int64_t kSteps = 4;  // the last two are replays
  const at::Tensor expected = learnt(eager, kSteps), found = learnt(graph, kSteps), other = learnt(other_masks, kSteps);
  EXPECT_TRUE(graph.captured());
  const double size = expected.norm().item<double>();
  EXPECT_GT(size, 0);
  const double difference = (found - expected).norm().item<double>();
  EXPECT_LT(difference, 0.05 * size);
  EXPECT_GT((other - expected).norm().item<double>(), 2 * difference);
}

// The forward computation of a loss, measured from outside.
double milliseconds_alone(const Options& options, const std::vector<LossTerm>& terms, bool replayed) {
  LossOptions chosen = options.loss;
  chosen.terms = terms;
  const LossSet set(chosen, options.data, options.model.out_channels);
  const Extent3& size = options.data.patch_size;
  const at::TensorOptions on_gpu = at::TensorOptions(at::kFloat).device(at::kCUDA);
  const at::Tensor logits = at::randn({options.data.batch_size, 1, size.z, size.y, size.x}, on_gpu).requires_grad_();
  Targets targets;
  targets.label = at::randn(logits.sizes(), on_gpu).gt(0.5).to(at::kByte);
  const auto work = [&] { set.compute({logits}, targets, 1); };
  if (replayed) return replayed_milliseconds(logits, 1, work).front();
  std::vector<double> all;
  for (int round = 0; round < 9; ++round) {
    torch::cuda::synchronize();
    const Clock::time_point begin = Clock::now();
    work();
    torch::cuda::synchronize();
    all.push_back(1e3 * seconds_since(begin));
  }
  std::nth_element(all.begin(), all.begin() + 4, all.end());
  return all[4];
}

TEST(TermTimes, AreThoseMeasuredFromOutside) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  if (cuda::small_tests()) GTEST_SKIP() << "times of small volumes say nothing";
  Recipe recipe{"terms of very different cost", small_unet()};
  Options& options = recipe.options;
  options.data.patch_size = {64, 128, 128};
  options.model.filters = {8, 16};
  options.model.out_channels = 1;
  options.model.deep_supervision = false;
  options.training.precision = "32";
  const LossTerm dear = with(term_of("cldice"), "iterations", "30"), cheap = term_of("focal");
  LossTerm off = term_of("bce");
  off.start_step = 1000000;
  options.loss.terms = {dear, cheap, term_of("dice", /*every=*/4), off};
  for (const std::string mode : {"off", "on"}) {
    SCOPED_TRACE("training.cuda_graph: " + mode);
    Trained trained(recipe, mode);
    trained.time_terms();
    trained.run(13);
    const std::vector<double> without_dice = trained.times_of(3), with_dice = trained.times_of(1);
    EXPECT_EQ(trained.captured(), mode == "on");
    const double dear_ms = without_dice[0] / 3, cheap_ms = without_dice[1] / 3, dice_ms = with_dice[2];
    const double dear_alone = milliseconds_alone(options, {dear}, mode == "on");
    const double both_alone = milliseconds_alone(options, {dear, cheap}, mode == "on");
    std::cout << "graphs " << mode << ": cldice " << dear_ms << " ms (alone " << dear_alone << "), focal " << cheap_ms
              << ", both alone " << both_alone << ", dice " << dice_ms << '\n';
    EXPECT_NEAR(dear_ms, dear_alone, 0.3 * dear_alone);
    EXPECT_NEAR(dear_ms + cheap_ms, both_alone, 0.3 * both_alone);
    EXPECT_GT(cheap_ms, 0);
    EXPECT_GT(dear_ms, 2 * cheap_ms);
    EXPECT_GT(dice_ms, 0);
    EXPECT_LT(dice_ms, cheap_ms);
    EXPECT_EQ(without_dice[2], 0) << "not due";
    EXPECT_EQ(without_dice[3] + with_dice[3], 0) << "off";
  }
}

// Terms of one pass have equal shares of it, and a lap itself takes next to nothing.
TEST(TermTimes, OfOnePassAreShared) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  Recipe recipe{"fused", small_unet()};
  Trained trained(recipe, "on");
  trained.time_terms();
  trained.run(4);
  const std::vector<double> times = trained.times_of(4);
  EXPECT_GT(times[0], 0);
  EXPECT_EQ(times[0], times[1]);
  const at::Tensor clock = at::zeros({2}, at::TensorOptions(at::kLong).device(at::kCUDA));
  constexpr int kLaps = 64;
  const auto laps = [&] {
    for (int i = 0; i < kLaps; ++i) ops::take_lap(clock, {0});
  };
  const double lap_ms = replayed_milliseconds(clock, 1, laps).front() / kLaps;
  std::cout << "a lap takes " << 1e3 * lap_ms << " us\n";
  EXPECT_LT(lap_ms, cuda::small_tests() ? 1 : 0.0025);  // two a term
}

// It looks at its logits on the host without having said so.
TEST(GraphStep, ALossThatNoGraphHoldsRunsEagerlyAndLeavesNoCaptureBehind) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const at::Tensor weight = at::ones({1}, at::kCUDA).set_requires_grad(true);
  const at::Tensor image = at::rand({1, 1, 4, 4, 4}, at::kCUDA);
  const GraphSegments segments{
      .forward = [&](const at::Tensor& from, int64_t) { return std::vector<at::Tensor>{from * weight}; },
      .loss =
          [](const std::vector<at::Tensor>& logits, const Targets&, int64_t) {
            GraphLoss loss;
            loss.part = loss.result.total = logits[0].sum() * (logits[0].max().item<float>() > 0 ? 1 : 2);
            loss.logit_grads = torch::autograd::grad({loss.part}, logits);
            return loss;
          },
      .learns = [](size_t, size_t, int64_t) { return true; },
      .collect_grads = [&] { weight.mutable_grad().reset(); },
      .update = [](const at::Tensor&) {}};
  const std::unique_ptr<GraphStep> graph = make_graph_step(segments, image.device());
  const Targets targets;
  const GraphInput input{.image = image, .targets = targets};
  graph->on_side_stream([&] { segments.loss(segments.forward(image, 0), targets, 0); });
  EXPECT_FALSE(graph->warmed_up(input));
  graph->capture(input);
  for (int step = 0; step < 3; ++step) {
    graph->forward(input);
    EXPECT_NEAR(graph->loss(input).part.item<double>(), image.sum().item<double>(), 1e-3) << step;
    graph->backward();
  }
  EXPECT_NO_THROW(at::getDeviceAllocator(at::kCUDA)->emptyCache());
  EXPECT_NO_THROW(at::rand({1}, at::kCUDA));
}

TEST(GraphStep, SaysWhyItCannot) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  Recipe recipe{"dropout that is recomputed", small_unet()};
  recipe.options.model.use_checkpoint = true;
  recipe.options.model.dropout = 0.2;
  EXPECT_THROW(Trained(recipe, "on"), Error);
  Trained fallback(recipe, "auto");
  fallback.run(3);
  EXPECT_FALSE(fallback.captured());
}

}  // namespace
}  // namespace vox
