// What our own code asks of torch's CUDA side.
#pragma once

#include <cstdint>
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

}  // namespace vox::ops
