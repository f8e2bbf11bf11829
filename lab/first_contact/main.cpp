// First contact with the GPU: forward, backward and fused AdamW of a three-level U-Net with one custom autograd
// function, captured from C++ as one CUDA graph and replayed 100 times, against the same steps run eagerly.
// Prints times and the largest difference of a weight; exit status 0 where they agree.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kWarmUpSteps = 3, kReplayedSteps = 100, kBatches = 4;
constexpr int64_t kPatch = 64, kFilters[3] = {16, 32, 64};
constexpr double kTolerance = 1e-6;

// Soft Dice loss of logits with a backward of its own: 1 - (2 sum(p t) + 1) / (sum(p) + sum(t) + 1).
struct SoftDice : torch::autograd::Function<SoftDice> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& target) {
    const Tensor p = logits.sigmoid();
    const Tensor numerator = (p * target).sum() * 2 + 1, denominator = p.sum() + target.sum() + 1;
    context->save_for_backward({p, target, numerator, denominator});
    return 1 - numerator / denominator;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &p = saved[0], &target = saved[1], &numerator = saved[2], &denominator = saved[3];
    const Tensor by_p = (numerator / denominator - target * 2) / denominator;
    return {grads[0] * by_p * p * (1 - p), Tensor()};
  }
};

struct UNet {
  std::vector<Tensor> weights;  // in the order forward() reads them
  size_t next = 0;

  UNet() {
    int64_t channels = 1;
    for (const int64_t filters : kFilters) {
      add_block(channels, filters);
      channels = filters;
    }
    for (int level = 1; level >= 0; --level) {
      add({channels, kFilters[level], 2, 2, 2}, std::sqrt(2.0 / static_cast<double>(channels)));
      add_block(2 * kFilters[level], kFilters[level]);
      channels = kFilters[level];
    }
    add({1, channels, 1, 1, 1}, std::sqrt(1.0 / static_cast<double>(channels)));
  }
  void add(at::IntArrayRef shape, double deviation) {
    weights.push_back((at::randn(shape) * deviation).to(at::kCUDA).set_requires_grad(true));
  }
  void add_block(int64_t in, int64_t out) {
    add({out, in, 3, 3, 3}, std::sqrt(2.0 / static_cast<double>(27 * in)));
    weights.push_back(at::ones({out}, at::kCUDA).set_requires_grad(true));
    weights.push_back(at::zeros({out}, at::kCUDA).set_requires_grad(true));
  }
  Tensor block(const Tensor& input, int64_t stride) {
    const Tensor raw = at::conv3d(input, weights[next], {}, {stride, stride, stride}, {1, 1, 1});
    Tensor normed = at::instance_norm(raw, weights[next + 1], weights[next + 2], {}, {}, true, 0.1, 1e-5, true);
    next += 3;
    return at::leaky_relu_(normed, 0.01);
  }
  Tensor forward(const Tensor& image) {
    next = 0;
    const Tensor fine = block(image, 1), middle = block(fine, 2), coarse = block(middle, 2);
    Tensor features = at::conv_transpose3d(coarse, weights[next++], {}, {2, 2, 2});
    features = block(at::cat({features, middle}, 1), 1);
    features = at::conv_transpose3d(features, weights[next++], {}, {2, 2, 2});
    features = block(at::cat({features, fine}, 1), 1);
    return at::conv3d(features, weights[next++]);
  }
};

// A training step whose every address is fixed: what a graph needs.
struct Step {
  UNet net;
  std::vector<Tensor> grads, exp_avgs, exp_avg_sqs, counts;
  Tensor image, target, lr, count, loss;

  Step() {
    for (Tensor& weight : net.weights) {
      weight.mutable_grad() = at::zeros_like(weight);
      grads.push_back(weight.grad());
      exp_avgs.push_back(at::zeros_like(weight));
      exp_avg_sqs.push_back(at::zeros_like(weight));
    }
    const auto on_device = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
    image = at::zeros({2, 1, kPatch, kPatch, kPatch}, on_device);
    target = at::zeros_like(image);
    lr = at::zeros({}, on_device);
    count = at::zeros({}, on_device);
    loss = at::zeros({}, on_device);
    counts.assign(net.weights.size(), count);  // one count for all: the kernel only reads it
  }
  void load(const Tensor& next_image, int step) {  // outside the graph
    image.copy_(next_image);
    target.copy_(next_image.gt(0.5));
    lr.fill_(1e-3 / (1 + 0.01 * step));
  }
  void run() {
    at::_foreach_zero_(grads);
    const Tensor value = SoftDice::apply(net.forward(image), target);
    value.backward();
    loss.copy_(value.detach());
    const at::NoGradGuard no_grad;
    count.add_(1);
    at::_fused_adamw_(net.weights, grads, exp_avgs, exp_avg_sqs, {}, counts, lr, 0.9, 0.999, 1e-2, 1e-8, false, false);
  }
};

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::vector<Tensor> make_batches() {
  std::vector<Tensor> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(at::randn({2, 1, kPatch, kPatch, kPatch}).to(at::kCUDA));
  return batches;
}

double run_eagerly(Step& step, const std::vector<Tensor>& batches) {
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kWarmUpSteps + kReplayedSteps; ++i) {
    if (i == kWarmUpSteps) {
      at::cuda::getCurrentCUDAStream().synchronize();
      start = std::chrono::steady_clock::now();
    }
    step.load(batches[static_cast<size_t>(i) % batches.size()], i);
    step.run();
  }
  at::cuda::getCurrentCUDAStream().synchronize();
  return milliseconds_since(start) / kReplayedSteps;
}

double run_captured(Step& step, const std::vector<Tensor>& batches, at::cuda::CUDAGraph& graph) {
  for (int i = 0; i < kWarmUpSteps; ++i) {
    step.load(batches[static_cast<size_t>(i) % batches.size()], i);
    step.run();
  }
  at::cuda::getCurrentCUDAStream().synchronize();
  // Thread-local: the backward's kernels come from autograd's thread, and other threads may allocate meanwhile.
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  step.run();
  graph.capture_end();
  const auto start = std::chrono::steady_clock::now();
  for (int i = kWarmUpSteps; i < kWarmUpSteps + kReplayedSteps; ++i) {
    step.load(batches[static_cast<size_t>(i) % batches.size()], i);
    graph.replay();
  }
  at::cuda::getCurrentCUDAStream().synchronize();
  return milliseconds_since(start) / kReplayedSteps;
}

}  // namespace

int main() {
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setAllowTF32CuDNN(false);
  torch::manual_seed(1);
  Step eager, captured;
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < eager.net.weights.size(); ++i) captured.net.weights[i].copy_(eager.net.weights[i]);
  }
  const std::vector<Tensor> batches = make_batches();
  const Tensor start = eager.net.weights[0].detach().clone();
  c10::cuda::device_synchronize();

  // Warm-up and capture on one side stream: a graph cannot be captured on the default one.
  const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
  const double eager_ms = run_eagerly(eager, batches);
  at::cuda::CUDAGraph graph;
  const double captured_ms = run_captured(captured, batches, graph);

  double difference = 0;
  for (size_t i = 0; i < eager.net.weights.size(); ++i) {
    difference = std::max(difference, (eager.net.weights[i] - captured.net.weights[i]).abs().max().item<double>());
  }
  const double moved = (eager.net.weights[0] - start).abs().max().item<double>();
  const bool passed = difference <= kTolerance && moved > 1e-3 && captured.count.item<double>() == 103;
  std::printf("eager %.3f ms a step, captured %.3f ms a step\n", eager_ms, captured_ms);
  std::printf("loss %.6f eager, %.6f captured; a first weight moved by %.3g\n", eager.loss.item<double>(),
              captured.loss.item<double>(), moved);
  std::printf("largest difference of a weight after %d steps: %.3g\n", kWarmUpSteps + kReplayedSteps, difference);
  std::printf("%s\n", passed ? "PASS" : "FAIL");
  return passed ? 0 : 1;
}
