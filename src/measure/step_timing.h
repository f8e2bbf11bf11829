// The training step alone: forward, loss, backward and optimizer on one random batch, without a data path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/options.h"

namespace vox {

struct StepBenchRequest {
  int64_t steps = 10, warm_up = 3;
  int threads = 0;  // torch's own; 0: all there are
  std::string device = "cpu";
  int64_t in_channels = 1;
};

struct StepBenchResult {
  std::vector<double> step_ms;
  std::vector<std::pair<std::string, double>> stage_ms;  // means
  double loss = 0;                                       // of the last step
};

// Model, loss, optimizer, patch and batch size as the options say; data.root is not looked at.
StepBenchResult bench_step(const Options& options, const StepBenchRequest& request);

}  // namespace vox
