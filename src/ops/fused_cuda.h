// What the CUDA files of the fused path share.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cuda.h"

namespace vox::ops::fused {

inline cuda::Scalar scalar_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return cuda::Scalar::kBFloat16;
    case at::kHalf:
      return cuda::Scalar::kFloat16;
    default:
      return cuda::Scalar::kFloat32;
  }
}

inline cuda::Shape5 shape_of(const at::Tensor& tensor) {
  return {tensor.size(0), tensor.size(2), tensor.size(3), tensor.size(4), tensor.size(1)};
}

inline float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

inline void* memory(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

inline at::Tensor channels_last(const at::Tensor& tensor) {
  return tensor.contiguous(at::MemoryFormat::ChannelsLast3d);
}

// Half precision on a GPU with the channels last: what the fused path is for.
inline bool is_ours(const at::Tensor& tensor) {
  return tensor.is_cuda() && (tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf) &&
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d) && tensor.numel() > 0;
}

}  // namespace vox::ops::fused
