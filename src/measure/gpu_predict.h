// `voxloom profile CONFIG --on GPU`: a recipe's step on GPUs that are not here. No data is read; channels that only the
// data would tell are taken as one in, and background and one class out.
#pragma once

#include <string>
#include <vector>

#include "config/options.h"
#include "measure/gpu_model.h"
#include "measure/memory_estimate.h"

namespace vox {

struct GpuPrediction {
  GpuSpec gpu;
  StepPrediction step;
  MemoryEstimate memory;
  double memory_gb = 0, usable_gb = 0;  // 1e9 bytes: of a step; what the GPU has for one
  bool fits = false;
  int64_t largest_batch = 0;  // 0: not even one sample fits
  double samples_per_s = 0;
};

struct RecipePrediction {
  int64_t batch = 1, accumulation = 1;
  double gflop = 0;  // of a step, forward and backward
  int64_t parameters = 0;
  std::vector<std::string> notes;  // what was assumed, and what is not part of the prediction
  std::vector<GpuPrediction> gpus;
};
RecipePrediction predict_recipe(const Options& options, const std::vector<GpuSpec>& gpus);

}  // namespace vox
