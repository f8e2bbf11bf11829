// A skeleton by thinning as an operation on tensors [N, C, Z, Y, X], with gradient.
#pragma once

#include "kernels/soft_thinning.h"

namespace at {
class Tensor;
}

namespace vox::ops {

// Each volume by itself, on CPU threads wherever the values are. The noise of a voxel is the same in every sample, so
// that it does not matter how a batch is cut into micro-batches; channels differ.
at::Tensor soft_thinning(const at::Tensor& values, const SoftThinningOptions& options);

}  // namespace vox::ops
