#include "measure/memory_estimate.h"

#include <torch/cuda.h>

#include <algorithm>

#include "kernels/cuda.h"
#include "ops/deep_product.h"

namespace vox {

namespace {

constexpr int64_t kFloat = 4, kHalf = 2;

// The batch itself with its copy in half precision, and what the losses hold beside the logits while they run.
int64_t batch_and_losses(const Options& options, bool half) {
  constexpr int64_t kLossTensors = 3;  // logits, their gradients, and where a captured step keeps those
  const int64_t voxels = options.data.batch_size * options.data.patch_size.voxels();
  const int64_t in = std::max<int64_t>(1, options.model.in_channels),
                out = std::max<int64_t>(1, options.model.out_channels);
  return voxels * (in * (kFloat + (half ? kHalf : 0)) + out * kFloat * kLossTensors);
}

// The image as our own convolutions read it, where they fill it up.
int64_t filled_up(const LayerTable& table) {
  if (table.layers.empty()) return 0;
  const ops::LayerRecord& first = table.layers.front();
  return first.input / first.in_channels * ops::channels_of_zeros(first);
}

int64_t elements_of(const ops::LayerRecord& layer) {
  int64_t elements = 1;
  for (const int64_t size : layer.output) elements *= size;
  return elements;
}

// Layer by layer backwards: what is still kept, the gradient of its output, and that of the input. The gradient behind
// a norm takes the place of the one before it, and the norm's own input is gone when the convolution's turn comes.
// Where cuDNN's plans are chosen they get half of input and output in place of either: no more (ops/library_conv.h).
int64_t backward_peak(const LayerTable& table) {
  int64_t peak = table.kept_fused_elements;
  for (const ops::LayerRecord& layer : table.layers) {
    const int64_t output = elements_of(layer);
    peak = std::max(peak, layer.kept_fused + (layer.has_norm ? std::max(output, layer.input) : output + layer.input));
  }
  return peak;
}

// Whether the gradient of its weights is written in float32 at once, as matrix products do.
bool writes_full_gradients(const ops::LayerRecord& layer) {
  const int64_t out = layer.output[1],
                places = layer.transposed ? layer.input / layer.in_channels : elements_of(layer) / out;
  const int64_t width = layer.taps * (layer.transposed ? out : layer.in_channels);
  const int64_t channels = layer.transposed ? layer.in_channels : out;
  return layer.groups == 1 && layer.taps > 1 && ops::is_deep_product(places, width, channels);
}

// What the backward pass leaves in half precision until it is collected.
int64_t half_gradients(const LayerTable& table) {
  int64_t count = 0;
  for (const ops::LayerRecord& layer : table.layers)
    if (!writes_full_gradients(layer)) count += layer.parameters;
  return count;
}

}  // namespace

MemoryOf memory_here(const SystemOptions& system) {
  const bool gpu = cuda::kCompiledIn && system.num_gpus != 0 && torch::cuda::is_available();
  return gpu ? MemoryOf::kGpu : MemoryOf::kCpu;
}

MemoryEstimate estimate_memory(const Options& options, const ParameterSet& parameters, const LayerTable& table,
                               MemoryOf device) {
  const std::string& precision = options.training.precision;
  const bool half = precision == "16-mixed" || precision == "bf16-mixed";
  const int64_t count = parameters.count(), element = half ? kHalf : kFloat;
  const std::string& optimizer = options.training.optimizer;
  const int64_t slots = optimizer == "sgd" ? (options.training.momentum != 0) : 2 + options.training.amsgrad;
  MemoryEstimate estimate;
  estimate.weights = count * (kFloat + (half ? kHalf : 0) + (options.training.ema > 0 ? kFloat : 0));
  estimate.gradients = count * kFloat;
  estimate.optimizer = count * kFloat * slots;
  const bool fused = half && device == MemoryOf::kGpu;
  estimate.activations = (fused ? table.kept_fused_elements : table.kept_elements) * element;
  if (fused) estimate.activations += filled_up(table) * kHalf;
  if (fused) estimate.gradients += half_gradients(table) * kHalf;
  if (fused && !options.model.use_checkpoint) {
    estimate.working = (backward_peak(table) - table.kept_fused_elements) * element;
  } else {
    int64_t largest = 0;
    for (const ops::LayerRecord& layer : table.layers) largest = std::max(largest, elements_of(layer));
    estimate.working = 2 * largest * element;
  }
  if (device == MemoryOf::kGpu) estimate.working += batch_and_losses(options, half);
  return estimate;
}

}  // namespace vox
