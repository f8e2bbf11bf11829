// What the CUDA files of the fused path share.
#pragma once

#include <ATen/core/Tensor.h>

#include <ATen/ops/empty.h>

#include "kernels/cuda.h"
#include "ops/feature_state.h"

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

// Whether nobody else reads a gradient that a backward() was given, or what it saved: autograd holds it once more while
// it calls.
inline bool is_ours_alone(const at::Tensor& grad) {
  return grad.use_count() <= 2 && grad.storage().use_count() == 1 &&
         grad.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

// Frees what such a tensor holds, which autograd would keep until the call is over.
inline void free_memory(const at::Tensor& grad) {
  c10::StorageImpl* const storage = grad.storage().unsafeGetStorageImpl();
  storage->set_data_ptr(at::DataPtr(nullptr, grad.device()));
  storage->set_nbytes(0);
}

struct Input {            // of a convolution: what it reads, and where its gradient goes
  at::Tensor activation;  // in autograd
  at::Tensor raw;         // detached
  at::Tensor scale, shift;
  double slope = 1;
  std::shared_ptr<NormBackward> norm{};  // that it waits for; null: none
};

inline Input input_of(const Feature& feature) {
  const Feature::State& state = feature.state();
  if (state.deferred) {
    const Deferred& d = *state.deferred;
    ++d.norm->readers;
    return {d.activation, d.raw, d.scale, d.shift, d.slope, d.norm};
  }
  const at::Tensor& values = feature.materialize();
  return {values, values.detach(), {}, {}, 1};
}

// Of any part of a feature, without materializing it.
inline const at::Tensor& any_tensor(const Feature& feature) {
  const Feature::State& state = feature.state();
  if (state.values.defined()) return state.values;
  return state.deferred ? state.deferred->raw : any_tensor(*state.first);
}

inline at::Tensor workspace(int64_t bytes, const at::Tensor& like) {
  return at::empty({bytes}, like.options().dtype(at::kByte));
}

}  // namespace vox::ops::fused
