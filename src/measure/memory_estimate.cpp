#include "measure/memory_estimate.h"

#include <torch/cuda.h>

#include <algorithm>
#include "kernels/cuda.h"

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

int64_t elements_of(const ops::LayerRecord& layer) {
  int64_t elements = 1;
  for (const int64_t size : layer.output) elements *= size;
  return elements;
}

// Layer by layer backwards: what is still kept, the gradient of its output, and the next one: of the raw output behind
// the norm, or of the input.
int64_t backward_peak(const LayerTable& table) {
  int64_t peak = table.kept_fused_elements;
  for (const ops::LayerRecord& layer : table.layers) {
    const int64_t output = elements_of(layer);
    peak = std::max(peak, layer.kept_fused + output + std::max(output, layer.input));
  }
  return peak;
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
  if (fused) estimate.gradients += count * kHalf;  // as the backward pass leaves them, until they are collected
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
