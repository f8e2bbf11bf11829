// The training step alone: forward, loss, backward and optimizer on one random batch, without a data path.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/options.h"

namespace vox {

struct StepBenchRequest {
  int64_t steps = 10, warm_up = 3;
  int64_t block =
      0;            // steps between two readings of the clock; 0: one on a CPU, all on a GPU, which works on meanwhile
  int threads = 0;  // torch's own; 0: all there are
  std::string device;       // empty: a GPU where there is one
  int64_t in_channels = 0;  // 0: as model.in_channels says, one where it does not
  int cudnn_plans = 0;      // that cuDNN may time for each convolution; 0: as training does
};

struct StepBenchFacts {
  double first_step_s = 0;                               // from the start of the program
  std::vector<std::pair<std::string, double>> start_s;   // what they went to
  std::vector<std::pair<std::string, double>> stage_ms;  // of the host, means of the timed steps
  double loss = 0;                                       // of the last step
  double estimated_gb = 0;                               // what memory_estimate.h says beforehand, in 1e9 bytes
  std::optional<double> gpu_peak_gb;                     // so far
  std::vector<std::pair<std::string, double>> peaks_gb;  // on a GPU: of making the network, of the first step, later
  bool captured = false;                                 // the steps are replays of CUDA graphs
  std::string note;                                      // what the step said about them
};

class StepBench {
 public:
  // Model, loss, optimizer, patch and batch size as the options say; data.root is not looked at. The warm-up is done
  // here.
  StepBench(const Options& options, const StepBenchRequest& request);
  ~StepBench();

  std::vector<double> run(int64_t steps);  // milliseconds a step, one number for each block
  StepBenchFacts facts();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vox
