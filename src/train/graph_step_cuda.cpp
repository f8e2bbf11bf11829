#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/torch.h>

#include <map>
#include <utility>

#include "base/error.h"
#include "ops/device.h"
#include "ops/dropout_masks.h"
#include "train/graph_step.h"

namespace vox {
namespace {

struct CUDAGraph : at::cuda::CUDAGraph {
  // Random numbers are drawn for it until then.
  void end_draws() {
    for (const auto& [state, draws] : captured_generator_states_) state->capturing_ = false;
  }
};

template <class Work>
void attempt(const Work& work) {
  try {
    work();
  } catch (const std::exception&) {
  }
}

// Ends a capture however its scope is left. Thread-local: the kernels of the backward pass come from autograd's thread,
// and data threads may allocate meanwhile.
class CaptureScope {
 public:
  CaptureScope(CUDAGraph& graph, const c10::MempoolId_t& pool) : graph_(graph), pool_(pool) {
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  }
  void end() {
    ended_ = true;
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      abandon();
      throw;
    }
  }
  ~CaptureScope() {
    if (ended_) return;
    attempt([&] { end(); });  // what broke the capture is already on its way up
  }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  // Where a capture cannot be ended, torch takes it to be under way for good: its allocators would keep what several
  // streams have used, give nothing back, and take no other capture into this pool; and random numbers could be drawn
  // no more.
  void abandon() {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    attempt([&] { graph_.end_draws(); });
    attempt([&] {
      const c10::DeviceIndex device = c10::cuda::current_device();
      allocator::endAllocateToPool(device, pool_);
      allocator::releasePool(device, pool_);
    });
    attempt([&] {
      auto* const pinned = at::getHostAllocator(at::kCUDA);
      pinned->end_allocate_to_pool(pool_);
      pinned->release_pool(pool_);
    });
  }

  CUDAGraph& graph_;
  c10::MempoolId_t pool_;
  bool ended_ = false;
};

struct PassKey {
  std::vector<int64_t> sizes, strides;
  at::ScalarType type;
  bool adds;
  std::vector<bool> due;
  const void* place;  // null: images are copied to a place of the pass's own
  auto operator<=>(const PassKey&) const = default;
};

struct LossPass {
  Targets targets;
  GraphLoss values;
  CUDAGraph graph;
};

struct Pass {  // of one micro-batch
  std::vector<bool> due;
  at::Tensor image;
  ops::FixedMasks masks;
  std::vector<at::Tensor> logits, logit_grads;
  CUDAGraph forward, backward;
  std::unique_ptr<LossPass> loss;  // null: the loss runs eagerly
  bool loss_seen = false, loss_refused = false;
};

Targets room_for(const Targets& targets, const at::Tensor& image) {
  const auto like = [](const at::Tensor& tensor) { return tensor.defined() ? at::empty_like(tensor) : tensor; };
  Targets result{.label = like(targets.label), .mask = like(targets.mask)};
  if (targets.image.defined()) result.image = image;
  for (const auto& [name, tensor] : targets.extra) result.extra[name] = like(tensor);
  return result;
}

void copy_targets(const Targets& from, Targets& to) {
  const auto copy = [](const at::Tensor& source, at::Tensor& target) {
    if (source.defined()) target.copy_(source, /*non_blocking=*/true);
  };
  copy(from.label, to.label);
  copy(from.mask, to.mask);
  for (const auto& [name, tensor] : from.extra) copy(tensor, to.extra.at(name));
}

class GraphStepOnGpu : public GraphStep {
 public:
  GraphStepOnGpu(const GraphSegments& segments, const at::Device& device)
      : segments_(segments), device_(device), side_(c10::cuda::getStreamFromPool(false, device.index())) {
    pool_ = at::cuda::graph_pool_handle();
    loss_pool_ = at::cuda::graph_pool_handle();
  }

  void on_side_stream(const std::function<void()>& work) override {
    c10::cuda::device_synchronize();
    {
      const c10::cuda::CUDAStreamGuard guard(side_);
      work();
    }
    c10::cuda::device_synchronize();
  }

  bool settled() const override { return settled_; }
  bool warmed_up(const GraphInput& input) override {
    const bool seen = !passes_.emplace(key_of(input), nullptr).second;
    if (!seen) settled_ = false;
    return seen;
  }
  bool captured(const GraphInput& input) const override {
    const auto found = passes_.find(key_of(input));
    return found != passes_.end() && found->second != nullptr;
  }

  void capture(const GraphInput& input) override {
    on_side_stream([&] {
      c10::cuda::CUDACachingAllocator::emptyCache();  // what the warm-up used goes to the pool of the graphs
      auto pass = std::make_unique<Pass>();
      pass->due = input.due;
      pass->image = input.resident ? input.image : at::empty_like(input.image);
      capture_forward(*pass, input.first_sample);
      for (const at::Tensor& output : pass->logits) pass->logit_grads.push_back(at::empty_like(output));
      capture_backward(*pass, input.step);
      passes_[key_of(input)] = std::move(pass);
    });
  }

  void forward(const GraphInput& input) override {
    current_ = passes_.at(key_of(input)).get();
    if (!input.resident) current_->image.copy_(input.image, /*non_blocking=*/true);
    current_->masks.fill(input.first_sample);
    current_->forward.replay();
  }

  GraphLoss loss(const GraphInput& input) override {
    Pass& pass = *current_;
    const bool warm = std::exchange(pass.loss_seen, true);
    if (warm && !pass.loss && !pass.loss_refused && !input.loss_reads_back) try_to_capture_loss(input);
    if (!pass.loss || input.loss_reads_back) {  // a step that begins late terms has the due ones of one that does not
      GraphLoss values = segments_.loss(leaves(pass), input.targets, input.step);
      keep_logit_grads(values, pass);
      return values;
    }
    if (!input.resident) copy_targets(input.targets, pass.loss->targets);
    pass.loss->graph.replay();
    return pass.loss->values;
  }

  void backward() override { current_->backward.replay(); }

  void update(const at::Tensor& loss) override {
    std::unique_ptr<CUDAGraph>& graph = updates_[current_->due];
    if (!graph) graph = capture_update(loss);
    loss_.copy_(loss);
    graph->replay();
    settled_ = true;
  }

 private:
  static PassKey key_of(const GraphInput& input) {
    return {input.image.sizes().vec(),
            input.image.strides().vec(),
            input.image.scalar_type(),
            input.adds,
            input.due,
            input.resident ? input.image.const_data_ptr() : nullptr};
  }

  void capture_forward(Pass& pass, int64_t first_sample) {
    const ops::FixedMasks::Recording recording(pass.masks);
    CaptureScope scope(pass.forward, pool_);
    pass.logits = segments_.forward(pass.image, first_sample);
    scope.end();
  }

  static std::vector<at::Tensor> leaves(const Pass& pass) {
    std::vector<at::Tensor> result;
    for (const at::Tensor& output : pass.logits) result.push_back(output.detach().set_requires_grad(true));
    return result;
  }

  static void keep_logit_grads(GraphLoss& values, Pass& pass) {
    for (size_t i = 0; i < pass.logit_grads.size(); ++i) {
      const at::Tensor& grad = values.logit_grads[i];
      grad.defined() ? pass.logit_grads[i].copy_(grad) : pass.logit_grads[i].zero_();
    }
    values.logit_grads.clear();
  }

  void try_to_capture_loss(const GraphInput& input) {
    try {
      current_->loss = capture_loss(input);
    } catch (const std::exception&) {  // losses may do what no graph can hold: these go on eagerly
      current_->loss_refused = true;
      loss_pool_ = at::cuda::graph_pool_handle();  // a pool that nothing was captured in is gone
    }
  }

  // In a pool of their own: they may be captured when the backward pass already is, whose pool counts what the forward
  // pass keeps as free.
  std::unique_ptr<LossPass> capture_loss(const GraphInput& input) {
    auto pass = std::make_unique<LossPass>();
    pass->targets = input.resident ? input.targets : room_for(input.targets, current_->image);
    on_side_stream([&] {
      CaptureScope scope(pass->graph, loss_pool_);
      GraphLoss& values = pass->values;
      values = segments_.loss(leaves(*current_), pass->targets, input.step);
      keep_logit_grads(values, *current_);
      values.part = values.part.detach();
      values.result.total = values.result.total.detach();
      scope.end();
    });
    return pass;
  }

  // The tape ends here: what it kept goes back to the pool, for the backward pass itself and whatever follows.
  void capture_backward(Pass& pass, int64_t step) {
    std::vector<at::Tensor> outputs, grads;
    for (size_t i = 0; i < pass.logits.size(); ++i) {
      if (!segments_.learns(i, pass.logits.size(), step)) continue;  // its layer stays as it is
      outputs.push_back(pass.logits[i]);
      grads.push_back(pass.logit_grads[i]);
    }
    CaptureScope scope(pass.backward, pool_);
    torch::autograd::backward(outputs, grads);
    segments_.collect_grads();
    scope.end();
    for (at::Tensor& output : pass.logits) output = output.detach();
  }

  std::unique_ptr<CUDAGraph> capture_update(const at::Tensor& loss) {
    if (!loss_.defined()) loss_ = at::empty_like(loss);
    auto graph = std::make_unique<CUDAGraph>();
    on_side_stream([&] {
      CaptureScope scope(*graph, pool_);
      segments_.update(loss_);
      scope.end();
    });
    return graph;
  }

  GraphSegments segments_;
  at::Device device_;
  c10::cuda::CUDAStream side_;
  c10::MempoolId_t pool_, loss_pool_;
  std::map<PassKey, std::unique_ptr<Pass>> passes_;                  // null: seen, not captured
  std::map<std::vector<bool>, std::unique_ptr<CUDAGraph>> updates_;  // by the terms that were due
  Pass* current_ = nullptr;
  at::Tensor loss_;
  bool settled_ = false;
};

}  // namespace

std::vector<double> replayed_milliseconds(const at::Tensor& on, int64_t repeats, const std::function<void()>& work) {
  const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool(false, on.device().index()));
  work();  // what is made at first use is made before
  c10::cuda::device_synchronize();
  CUDAGraph graph;
  CaptureScope scope(graph, at::cuda::graph_pool_handle());
  work();
  scope.end();
  std::vector<double> result;
  for (int64_t i = 0; i < repeats; ++i) result.push_back(ops::milliseconds_of(on, [&] { graph.replay(); }));
  return result;
}

std::unique_ptr<GraphStep> make_graph_step(const GraphSegments& segments, const at::Device& device) {
  return std::make_unique<GraphStepOnGpu>(segments, device);
}

}  // namespace vox
