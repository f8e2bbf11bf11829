// The losses of voxels as one operation with gradient, on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/loss_cuda.h"

namespace vox::ops {

struct FusedLoss {
  cuda::LossProblem problem;       // all but sizes and addresses, which come from the tensors
  at::Tensor target, label, mask;  // [N, C or 1, Z, Y, X] at full resolution; label and mask may be undefined
};

struct FusedLossValues {
  at::Tensor total;  // weighted sum; has a gradient
  at::Tensor terms;  // [cuda::kLossTerms]; has none
};
// Logits float32 [N, C, z, y, x], one for each scale of the problem.
FusedLossValues fused_losses(const std::vector<at::Tensor>& logits, const FusedLoss& loss);

}  // namespace vox::ops
