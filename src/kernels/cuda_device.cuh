// Included by .cu files: checks, loads of 16 bytes, conversions between storage types and float.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "base/error.h"
#include "kernels/cuda.h"

namespace vox::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(concat("GPU: ", what, ": ", cudaGetErrorString(status)), Fault::kBug);
}
// After a launch. Errors inside the kernel come later, at the next wait.
inline void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
}

inline int multiprocessors() {
  static const int count = [] {
    int device = 0, found = 0;
    check(cudaGetDevice(&device), "device");
    check(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device), "multiprocessors");
    return found;
  }();
  return count;
}

__device__ __forceinline__ float to_float(float v) {
  return v;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 v) {
  return __bfloat162float(v);
}
__device__ __forceinline__ float to_float(__half v) {
  return __half2float(v);
}
template <class T>
__device__ __forceinline__ T from_float(float v) {
  if constexpr (sizeof(T) == 4)
    return v;
  else if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(v);
  else
    return __float2bfloat16_rn(v);
}

// Calls f with a value of the storage type that `scalar` names.
template <class F>
void dispatch(Scalar scalar, F&& f) {
  switch (scalar) {
    case Scalar::kFloat32:
      return f(float{});
    case Scalar::kBFloat16:
      return f(__nv_bfloat16{});
    case Scalar::kFloat16:
      return f(__half{});
  }
}

}  // namespace vox::cuda
