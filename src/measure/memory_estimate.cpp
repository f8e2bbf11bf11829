#include "measure/memory_estimate.h"

#include <algorithm>

namespace vox {

MemoryEstimate estimate_memory(const Options& options, const ParameterSet& parameters, const LayerTable& table) {
  constexpr int64_t kFloat = 4, kHalf = 2;
  const std::string& precision = options.training.precision;
  const bool half = precision == "16-mixed" || precision == "bf16-mixed";
  const int64_t count = parameters.count(), element = half ? kHalf : kFloat;
  const std::string& optimizer = options.training.optimizer;
  const int64_t slots = optimizer == "sgd" ? (options.training.momentum != 0) : 2 + options.training.amsgrad;
  MemoryEstimate estimate;
  estimate.weights = count * (kFloat + (half ? kHalf : 0) + (options.training.ema > 0 ? kFloat : 0));
  estimate.gradients = count * kFloat;
  estimate.optimizer = count * kFloat * slots;
  estimate.activations = table.kept_elements * element;
  int64_t largest = 0;
  for (const ops::LayerRecord& layer : table.layers) {
    int64_t elements = 1;
    for (const int64_t size : layer.output) elements *= size;
    largest = std::max(largest, elements);
  }
  estimate.working = 2 * largest * element;
  return estimate;
}

}  // namespace vox
