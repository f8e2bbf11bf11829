// What a training step needs on its device, counted from the layers before anything runs.
#pragma once

#include "config/options.h"
#include "nets/network.h"

namespace vox {

struct MemoryEstimate {  // bytes
  int64_t weights = 0;   // masters, half-precision shadows, the average
  int64_t gradients = 0, optimizer = 0;
  int64_t activations = 0;  // what the backward pass keeps of one micro-batch
  int64_t working = 0;      // what a layer works on beside what is kept; on a GPU also the batch and its losses
  int64_t total() const { return weights + gradients + optimizer + activations + working; }
};

// `table` is of one micro-batch. Activation checkpointing keeps the ends of stages alone and is counted so.
enum class MemoryOf { kCpu, kGpu };
MemoryOf memory_here(const SystemOptions& system);  // of the device that training would take
MemoryEstimate estimate_memory(const Options& options, const ParameterSet& parameters, const LayerTable& table,
                               MemoryOf device = MemoryOf::kCpu);

}  // namespace vox
