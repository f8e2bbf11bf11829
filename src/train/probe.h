// Looks on from inside a run: how `voxloom profile` measures the steps that training really makes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace vox {

class Store;
struct Learner;

struct ProbedStep {
  int64_t step = 0;  // done so far
  int64_t steps_per_epoch = 0, micro_batch = 0;
  int data_threads = 0, compute_threads = 0;
  bool on_gpu = false;
  Store* store = nullptr;
  Learner* learner = nullptr;
  std::optional<double> loss;
};

enum class ProbeAnswer { kGoOn, kSave, kEnd };  // save: a checkpoint now; end: without one

struct StepProbe {
  std::function<ProbeAnswer(const ProbedStep&)> after_step;  // between two steps, logging and saving included
  int64_t losses = 0;                                        // steps whose loss is fetched: each waits for the device
  std::function<bool()> same_batch = {};  // where set, asked before every batch: the one before again, without data?
  std::function<bool()> is_quiet = {};    // where set, asked before every row and checkpoint: are they left out?
};

}  // namespace vox
