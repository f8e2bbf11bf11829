// A training step on a GPU as captured segments: forward | losses | backward with fixed gradients of the logits |
// optimizer. A replay launches each segment at once. Losses that a graph cannot hold run eagerly in between, the others
// are captured last and so have a pool of memory of their own; all else shares one. Segments are captured anew where
// the shape of the image or the terms that are due differ.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "losses/loss.h"

namespace vox {

struct GraphLoss {
  LossResult result;
  at::Tensor part;                      // of the step's loss, one of its micro-batches
  std::vector<at::Tensor> logit_grads;  // undefined: zero
};

struct GraphSegments {
  std::function<std::vector<at::Tensor>(const at::Tensor& image, int64_t first_sample)> forward;  // logits
  std::function<GraphLoss(const std::vector<at::Tensor>& logits, const Targets& targets, int64_t step)> loss;
  std::function<bool(size_t output, size_t outputs, int64_t step)> learns;  // has a gradient at this step
  std::function<void()> collect_grads;                                      // after a backward pass
  std::function<void(const at::Tensor& loss)> update;                       // from the collected gradients
};

struct GraphInput {
  at::Tensor image;
  const Targets& targets;
  int64_t first_sample = 0;
  bool adds = false;      // to the gradients of micro-batches before it
  bool resident = false;  // image and targets lie at this place in every step and are read there
  int64_t step = 0;
  std::vector<bool> due;         // terms of the loss
  bool loss_reads_back = false;  // the loss cannot be captured
};

class GraphStep {
 public:
  virtual ~GraphStep() = default;

  // Steps run here until all of their segments are captured: a graph cannot be captured on the default stream.
  virtual void on_side_stream(const std::function<void()>& work) = 0;
  virtual bool settled() const = 0;  // every segment of the last step was replayed

  // Whether such a batch was seen before, eagerly: only then its segments may be captured.
  virtual bool warmed_up(const GraphInput& input) = 0;
  virtual bool captured(const GraphInput& input) const = 0;
  virtual void capture(const GraphInput& input) = 0;  // nothing is computed yet

  virtual void forward(const GraphInput& input) = 0;
  virtual GraphLoss loss(const GraphInput& input) = 0;  // of the last forward()
  virtual void backward() = 0;
  virtual void update(const at::Tensor& loss) = 0;  // captured at its first use for the terms of the last forward()
};

// What the GPU of a tensor takes for `work`, which reads nothing back, as a step would replay it; a number for each
// repeat, see ops::milliseconds_of. What a host takes to launch the kernels of `work` one by one is not in it.
std::vector<double> replayed_milliseconds(const at::Tensor& on, int64_t repeats, const std::function<void()>& work);

std::unique_ptr<GraphStep> make_graph_step(const GraphSegments& segments, const at::Device& device);

}  // namespace vox
