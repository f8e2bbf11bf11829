// The 1x1x1 convolution of an output layer: half-precision activations in, float32 logits out, float32 weights and
// sums; the norm and leaky ReLU that the input waits for are applied on load.
#pragma once

#include "kernels/cuda.h"

namespace vox::cuda {

struct Head {
  const void* x = nullptr;  // [n, z, y, x, in]
  Scalar type = Scalar::kBFloat16;
  Shape5 shape;                  // of x
  int64_t out = 1;               // classes; head_available says how many
  const float* scale = nullptr;  // [n][in] each, or null
  const float* shift = nullptr;
  float slope = 1;                 // 1: no activation
  const float* weights = nullptr;  // [out][in]
};
bool head_available(const Head& head);
// logits float32 [n][out][z][y][x] (torch's contiguous), so that the losses read each class in one piece.
void head_forward(const Head& head, const float* bias, float* logits, Stream stream);
// One pass: da [n, z, y, x, in] in the input's type (null: not wanted), dw float32 [out][in] and dbias [out] (null: not
// wanted), summed in a fixed order through `workspace`.
int64_t head_workspace(const Head& head);  // bytes
void head_backward(const Head& head, const float* dlogits, void* da, float* dw, float* dbias, void* workspace,
                   Stream stream);

}  // namespace vox::cuda
