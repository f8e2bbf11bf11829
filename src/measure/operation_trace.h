// Torch's own profiler (Kineto) for a few steps: operations on the host, and kernels on the GPU also where a captured
// graph launches them.
#pragma once

#include <memory>
#include <vector>

#include "measure/traced_events.h"

namespace vox {

class OperationTrace {  // from its making on; one at a time
 public:
  enum class Sees { kHost, kHostAndGpu };
  // Operations of the calling thread, and of those that autograd runs for it.
  explicit OperationTrace(Sees sees);
  ~OperationTrace();
  OperationTrace(const OperationTrace&) = delete;
  OperationTrace& operator=(const OperationTrace&) = delete;

  // Times count from `origin`. Empty where the profiler gave nothing that can be read.
  std::vector<TracedEvent> stop(Clock::time_point origin);

 private:
  bool running_ = false;
};

}  // namespace vox
