// What torch's profiler saw, and the tables made of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/span.h"

namespace vox {

struct StageLine {
  std::string name;
  double ms = 0;  // a step
};

struct OperationLine {  // on a CPU an operation of torch without those inside it, on a GPU a kernel or a copy
  std::string name;
  double calls = 0, ms = 0;  // a step
};

struct TracedEvent {
  // On the host: an operation of torch, a call of the CUDA runtime. On the GPU: a kernel (fills and copies within its
  // memory too), a copy from or to the host.
  enum class Kind { kOperation, kCall, kKernel, kCopy };
  std::string name;
  Kind kind = Kind::kOperation;
  int64_t track = 0;  // the thread, or the stream of the GPU
  int64_t begin_ns = 0, end_ns = 0;
  int64_t correlation = -1;  // of a call and of what it launched; -1: none

  bool on_gpu() const { return kind == Kind::kKernel || kind == Kind::kCopy; }
};

struct TimeInterval {
  int64_t begin_ns = 0, end_ns = 0;
};
int64_t covered_ns(std::vector<TimeInterval> intervals);  // by at least one of them

// Those that take the most time: of the GPU where anything ran there, else operations without those inside them.
std::vector<OperationLine> slowest_operations(const std::vector<TracedEvent>& events, int64_t steps, size_t at_most);

// Of the time from the first kernel's begin to the last one's end; absent work is 0.
double gpu_busy_share(const std::vector<TracedEvent>& events);

// Calls in which the host waits for the GPU.
int64_t count_sync_points(const std::vector<TracedEvent>& events);

// Time on the GPU by the innermost span in which it was enqueued, in the order of first use; what was enqueued outside
// of all is "other". Within "transfer" copies are "host_to_device" and kernels "gather" and "intensity".
std::vector<StageLine> gpu_time_by_span(const std::vector<TracedEvent>& events, const std::vector<SpanRecord>& spans,
                                        int64_t steps);

// A kernel's name without what it returns and takes.
std::string kernel_name(const std::string& signature);

}  // namespace vox
