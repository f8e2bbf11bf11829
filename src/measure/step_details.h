// A few steps under torch's profiler, beside the measured ones: which operations they consist of, and how much of what
// this machine can do they use.
#pragma once

#include <memory>

#include "measure/operation_trace.h"
#include "measure/profile.h"
#include "train/probe.h"

namespace at {
class Tensor;
}

namespace vox {

class StepDetailer {
 public:
  explicit StepDetailer(const Options& options) : options_(options) {}

  void start(const ProbedStep& step, double step_ms);              // between two steps, as the others
  bool step_done(Clock::time_point begin, Clock::time_point end);  // true: it has seen enough
  // `measured` is when record.spans begin.
  StepDetails finish(const ProbedStep& step, const StepRecord& record, Clock::time_point measured);

 private:
  void begin_counting();
  void read_events(const std::vector<TracedEvent>& events, const StepRecord& record);

  const Options& options_;
  std::unique_ptr<OperationTrace> trace_;
  Clock::time_point started_, origin_;
  bool counts_ = false;
  int64_t wanted_ = 1;                               // steps
  int64_t last_step_end_ns_ = 0, steps_end_ns_ = 0;  // on the host, and of everything it had enqueued
  int64_t forward_begin_ns_ = 0;                     // of the pass that shows its stages
  bool on_gpu_ = false;
  StepDetails details_;
};

// Loss terms by the GPU's clock, from LossSet::term_nanoseconds before and after these steps: from the end of all work
// before a term to the end of its forward computation. What the host does in between is in it where the GPU waits.
std::vector<StageLine> term_lines(const std::vector<std::string>& terms, const at::Tensor& before_ns,
                                  const at::Tensor& after_ns, int64_t steps);

double gpu_total_gb(const Learner& learner);     // that there is
double gpu_reserved_gb(const Learner& learner);  // at its peak, in 1e9 bytes: what the captured step holds too

}  // namespace vox
