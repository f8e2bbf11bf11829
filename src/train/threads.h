// How the CPUs are shared: data threads and torch's own together stay within system.num_cpus.
#pragma once

#include "config/options.h"

namespace vox {

struct ThreadPlan {
  int cpus = 1;
  int data = 1;     // pipeline threads
  int compute = 1;  // torch's own
};

enum class ComputeOn { kCpu, kGpu };

// The automatic number of compute threads does not depend on data.num_workers: weights must not either.
ThreadPlan plan_threads(const Options& options, ComputeOn where);

}  // namespace vox
