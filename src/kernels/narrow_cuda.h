// The transposed convolution of stride 2 to very few channels: the last layer of networks that halve their
// resolution first of all. Every input voxel has at most 64 products, one for each tap and output channel; they never
// leave the multiprocessor. The input may be two tensors that stand for a concatenation; the norm and leaky ReLU that
// each waits for are applied on load.
#pragma once

#include "kernels/cuda.h"

namespace vox::cuda {

struct NarrowInput {
  const void* x = nullptr;  // [n, z, y, x, channels]; null: there is no second input
  int64_t channels = 0;
  const float* scale = nullptr;  // [n][channels] each, or null
  const float* shift = nullptr;
  float slope = 1;  // 1: no activation
};
struct Narrow {
  NarrowInput input[2];
  Scalar type = Scalar::kBFloat16;
  int64_t n = 1, z = 1, y = 1, x = 1;  // of the input
  Shape5 result;
  int kernel[3] = {4, 4, 4}, padding[3] = {1, 1, 1};
  const void* weights = nullptr;  // [in][pitch], of which [kernel z][kernel y][kernel x][out], in the input's type
  int64_t pitch = 64;
  const float* bias = nullptr;  // [out], or null
};
bool narrow_available(const Narrow& layer);
// [n, z, y, x, out] of `to`: float32, or the input's type.
void narrow_forward(const Narrow& layer, void* result, Scalar to, Stream stream);

// da of each input in its type and layout (null: not wanted), and dw float32 [in][kernel z][kernel y][kernel x][out],
// summed in a fixed order through `workspace`, from dy [n, z, y, x, out] of type `from`. Products of half precision.
struct NarrowGradient {
  const void* dy = nullptr;
  Scalar from = Scalar::kFloat32;
  void* da[2] = {nullptr, nullptr};
  float* dw = nullptr;
};
int64_t narrow_workspace(const Narrow& layer);  // bytes
void narrow_backward(const Narrow& layer, const NarrowGradient& gradient, void* workspace, Stream stream);

}  // namespace vox::cuda
