// The 2x2x2 transposed convolution of stride 2, forward, in half precision: every input voxel becomes eight output
// voxels, so that it is one matrix product whose results go straight to their places. The norm and leaky ReLU that the
// input waits for are applied on load.
#pragma once

#include "kernels/cuda.h"

namespace vox::cuda {

struct Upsample {
  const void* x = nullptr;  // [n, z, y, x, in]
  Scalar type = Scalar::kBFloat16;
  Shape5 shape;                   // of x
  int64_t out = 0;                // channels
  const void* weights = nullptr;  // [in][out][2][2][2] in the input's type
  bool channels_last = false;     // of the weights: [in][2][2][2][out]
  const void* bias = nullptr;     // [out] in the input's type, or null
  const float* scale = nullptr;   // [n][in] each, or null
  const float* shift = nullptr;
  float slope = 1;  // 1: no activation
};
bool upsample_available(const Upsample& layer);
// y [n, 2z, 2y, 2x, out] in the input's type.
void upsample_forward(const Upsample& layer, void* y, Stream stream);

}  // namespace vox::cuda
