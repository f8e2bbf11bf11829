// What soft Dice and binary cross entropy of logits need, for Python's operators: sums of each sample in one pass, and
// the gradient from those of the sums in another. Targets below 0 are ignored. Sums have a fixed order.
#pragma once

#include "kernels/cuda.h"

namespace vox {

// Of a sample, in this order: sum(p t), sum(p), sum(t), the sum of the entropies, and how many voxels count.
constexpr int kDiceBceSums = 5;

struct DiceBceInput {  // [samples, voxels]
  const float* logits;
  const float* target;
  int64_t samples = 1, voxels = 0;
};

int64_t dice_bce_workspace(const DiceBceInput& input);  // doubles
void dice_bce_sums_cuda(double* sums, const DiceBceInput& input, double* workspace, cuda::Stream stream);
// `grads` [samples, sums]: the gradient of the loss by each sum.
void dice_bce_backward_cuda(float* grad, const double* grads, const DiceBceInput& input, cuda::Stream stream);

}  // namespace vox
