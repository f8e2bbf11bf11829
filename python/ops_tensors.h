// What the operators share: tensors as rows of volumes, and errors of kernels as torch's.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <string>

#include "base/error.h"
#include "base/shape.h"
#include "kernels/cuda.h"

namespace vox::python {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

struct Volumes {  // a tensor as a row of volumes
  int64_t count = 1;
  Extent3 extent;
};

inline Volumes volumes_of(const Tensor& tensor, ScalarType type, const char* name) {
  STD_TORCH_CHECK(tensor.dim() >= 3, "voxloom: ", name, " has ", tensor.dim(), " axes; at least z, y and x are needed");
  STD_TORCH_CHECK(tensor.scalar_type() == type && tensor.is_contiguous(), "voxloom: ", name,
                  " has another type or layout than expected; call the functions of the package, not torch.ops");
  Volumes volumes;
  const int64_t axes = tensor.dim();
  for (int64_t axis = 0; axis + 3 < axes; ++axis) volumes.count *= tensor.size(axis);
  volumes.extent = {tensor.size(axes - 3), tensor.size(axes - 2), tensor.size(axes - 1)};
  return volumes;
}

template <class T>
const T* read(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <class T>
T* write(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

inline Tensor like(const Tensor& tensor, ScalarType type) {
  const auto sizes = tensor.sizes();
  return torch::stable::new_empty(tensor, sizes, type);
}

inline Tensor workspace_of(const Tensor& tensor, int64_t count, ScalarType type) {
  const int64_t shape[1] = {count};
  return torch::stable::new_empty(tensor, {shape, 1}, type);
}

// Applies f(first element) to each volume; an Error of a kernel becomes torch's.
template <class F>
void for_each_volume(const Volumes& volumes, const F& f) {
  try {
    for (int64_t v = 0; v < volumes.count; ++v) f(v * volumes.extent.voxels());
  } catch (const Error& error) {
    STD_TORCH_CHECK(false, "voxloom: ", std::string(error.what()));
  }
}

// Runs f with the stream; an Error of a kernel becomes torch's.
template <class F>
void on_stream(int64_t stream, const F& f) {
  try {
    f(reinterpret_cast<cuda::Stream>(stream));
  } catch (const Error& error) {
    STD_TORCH_CHECK(false, "voxloom: ", std::string(error.what()));
  }
}

}  // namespace vox::python
