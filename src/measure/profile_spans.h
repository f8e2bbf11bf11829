// Spans to times: what each stage took by itself, step by step on the thread that trains and summed over those that
// make samples.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/span.h"
#include "measure/traced_events.h"

namespace vox {

struct StageTime {
  int64_t count = 0;
  double self_ms = 0;  // without the spans inside it
  double cpu_ms = 0;   // of those, on a CPU
  double waited_ms() const { return self_ms - cpu_ms; }
};
using StageTable = std::map<std::string, StageTime>;

struct SpanSums {
  std::vector<StageTable> steps;  // of the thread that trains; the rest of a step is "other"
  StageTable data;                // all threads that make samples together
  std::vector<double> sample_ms;  // work of each sample: CPU time, and waiting for the disk
  double storage_wait_ms = 0;     // of that, waiting
  double data_busy_ms = 0;        // how long threads that make samples were at it
  StageTable background;          // other threads: checkpoints
};

inline constexpr const char* kStepSpan = "step";  // encloses what one step did on its thread

SpanSums sum_spans(const std::vector<SpanRecord>& spans);

// Stages of the network have spans inside "forward", which counts as one stage of the step all the same. In the order
// of first use, with what is in none of them (the way in, output layers) as "other".
std::vector<StageLine> forward_lines(const std::vector<SpanRecord>& spans, int64_t steps);
std::string name_of_forward_stage(const std::string& span);  // "encoder 32x32x32" of "forward.encoder 32x32x32"

}  // namespace vox
