// What our own code asks of torch's CUDA side.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda.h"

namespace at {
class Tensor;
}

namespace vox::ops {

// The stream on which torch enqueues work of a tensor's device, for our own kernels to follow it there.
cuda::Stream current_stream(const at::Tensor& tensor);

// Of the device and type of `like`, in memory that no captured graph counts as its own: a graph may write whatever it
// computed earlier into what it took from its pool. May be called while a graph is captured.
at::Tensor empty_outside_of_graphs(const std::vector<int64_t>& size, const at::Tensor& like);

// For choices among kernels: what the GPU of a tensor takes for `work`, after one run that does not count, and a name
// of that GPU, its driver and its cuDNN. Timing waits for the GPU, so there is none while a graph is captured.
double milliseconds_of(const at::Tensor& on, const std::function<void()>& work);
// The same on a thread of its own, which knows none of the plans that torch keeps for the caller's.
double milliseconds_elsewhere(const at::Tensor& on, const std::function<void()>& work);
bool is_captured(const at::Tensor& on);
std::string gpu_and_libraries(const at::Tensor& on);

// A stop watch on a GPU (kernels/lap_cuda.h). `clock` is int64 [slots + 1] there: nanoseconds so far, and the last lap.
void take_lap(const at::Tensor& clock, const std::vector<size_t>& slots);

// While it lives, torch takes at most so many bytes more of the GPU's memory than it holds at the beginning: what a
// library would like beyond that it has to do without.
class MemoryLimit {
 public:
  MemoryLimit(const at::Tensor& on, int64_t bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  int device_;
  double before_;
};

}  // namespace vox::ops
