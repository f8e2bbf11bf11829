// Convolutions of cuDNN's, through torch, on a GPU. Before cuDNN has a plan for a shape it builds and times some, and
// that is most of what a program does before its first step. How many it has to look at for the fastest is found out
// once for each shape and kept among the choices of kernels (ops/kernel_choice.h); and none may take more memory for
// itself than half of what it reads and writes, or a little. While plans for the gradient of an input are chosen they
// have the input's memory, which is read no more: a first step needs hardly more than the later ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <utility>

namespace vox::ops {

struct LibraryConv {
  std::array<int64_t, 3> stride{1, 1, 1}, padding{0, 0, 0}, output_padding{0, 0, 0};
  int64_t groups = 1;
  bool transposed = false;
};

// A part of autograd.
at::Tensor library_convolution(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                               const LibraryConv& how);

// Of x and of the weight, as far as they are wanted; undefined otherwise. An x that only the caller and autograd hold
// may be without its memory afterwards.
struct WantedGradients {
  bool x = true, weight = true;
};
std::pair<at::Tensor, at::Tensor> library_gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                                    const LibraryConv& how, WantedGradients wanted);

}  // namespace vox::ops
