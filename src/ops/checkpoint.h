// Activation checkpointing: a segment runs without keeping what its backward needs, and runs again in backward.
#pragma once

#include <functional>
#include <vector>

namespace at {
class Tensor;
}

namespace vox::ops {

using Segment = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// `parameters` are the leaves that the segment reads besides its inputs; all of them get their gradients as if the
// segment had run plainly. The segment must give the same values both times.
std::vector<at::Tensor> checkpoint(const Segment& segment, const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& parameters);

// Whether this thread is inside the second run of a segment: what a layer does once per step is left out there.
bool recomputing();

}  // namespace vox::ops
