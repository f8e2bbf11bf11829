// 3x3x3 convolutions of stride 1 on Hopper's tensor cores, bfloat16 in and out with float32 sums, [n, z, y, x, c].
// The input may be two tensors that stand for a concatenation, each with the norm and leaky ReLU that it still waits
// for; the result may be two tensors likewise (the data gradient of a concatenation).
#pragma once

#include "kernels/cuda.h"

namespace vox::cuda {

struct ConvInput {
  const void* x = nullptr;       // null: there is no second input
  int64_t channels = 0;          // a multiple of 32
  const float* scale = nullptr;  // [n][channels] each, or null: x * scale + shift, then the leaky ReLU
  const float* shift = nullptr;
  float slope = 1;  // 1: no activation
};
// What a data gradient is the gradient of, where that is leaky_relu(x * scale + shift), and the sums of it that the
// norm's backward wants: those of norm_grad_sums (kernels/norm_cuda.h), as [n][conv3d_moment_rows()][2][channels].
struct ConvNorm {
  const void* x = nullptr;       // raw, as large as the gradient; null: no sums are wanted
  const float* scale = nullptr;  // [n][channels] each
  const float* shift = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  float slope = 1;
  float* sums = nullptr;
};
struct ConvOutput {
  void* y = nullptr;
  int64_t channels = 0;
  ConvNorm norm{};
};
struct Conv3d {
  int64_t n = 1, z = 1, y = 1, x = 1;
  ConvInput input[2];
  ConvOutput output[2];  // data gradients alone have a second
  int64_t in() const { return input[0].channels + input[1].channels; }
  int64_t out() const { return output[0].channels + output[1].channels; }
};

bool conv3d_available();  // this GPU has what the kernels need
// What is expected of our kernel and of cuDNN's (a table made from measurements); own_ms is 0 where there is no kernel.
// An input that waits for its norm, or that is two tensors, costs cuDNN a pass over it first, which is counted.
struct ConvTimes {
  double own_ms = 0, cudnn_ms = 0;
};
ConvTimes conv3d_forward_times(const Conv3d& conv);
ConvTimes conv3d_weight_gradient_times(const Conv3d& conv);

// Weights [out][3][3][3][in] bfloat16 (torch's channels_last_3d) into the order the kernel reads; as many elements.
// kGradient: the operator that takes gradients of the output to gradients of the input; in() and out() change places.
enum class ConvWay : uint8_t { kForward, kGradient };
void conv3d_pack(const void* weights, void* packed, int64_t in, int64_t out, ConvWay way, Stream stream);

// Moments (count, mean, M2) of the unrounded result as kernels/norm_cuda.h reads them, [n][rows][3][out]; null: none.
int64_t conv3d_moment_rows(const Conv3d& conv);
// in() is 32, 64 or 128; all pointers are multiples of 16 bytes.
void conv3d_forward(const Conv3d& conv, const void* packed, float* moments, Stream stream);

// dw float32 [out][3][3][3][in]; conv.output[0].y is dy (one tensor). workspace: conv3d_workspace() bytes.
int64_t conv3d_workspace(const Conv3d& conv);
void conv3d_weight_gradient(const Conv3d& conv, float* dw, void* workspace, Stream stream);

// One channel in, 32 out; weights [32][27] bfloat16, dw float32 [32][27].
bool conv3d_first_layer_available(const Conv3d& conv);
void conv3d_first_layer(const Conv3d& conv, const void* weights, float* moments, Stream stream);
int64_t conv3d_first_layer_moment_rows(const Conv3d& conv);
int64_t conv3d_first_layer_workspace(const Conv3d& conv);
void conv3d_first_layer_weight_gradient(const Conv3d& conv, float* dw, void* workspace, Stream stream);

}  // namespace vox::cuda
