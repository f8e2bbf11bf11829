// Helpers of the GPU tests of this folder and those above it: device memory that holds what the host had, the time of
// what is enqueued.
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/volume.h"

namespace vox::cuda {

inline at::Tensor device_bytes(const void* data, int64_t bytes) {
  at::Tensor host = at::empty({std::max<int64_t>(bytes, 16)}, at::kByte);
  if (bytes > 0) std::memcpy(host.data_ptr(), data, static_cast<size_t>(bytes));
  return host.to(at::kCUDA);
}

inline std::vector<std::byte> host_bytes(const at::Tensor& tensor) {
  const at::Tensor host = tensor.contiguous().to(at::kCPU);
  std::vector<std::byte> bytes(static_cast<size_t>(host.nbytes()));
  std::memcpy(bytes.data(), host.data_ptr(), bytes.size());
  return bytes;
}

inline double milliseconds_of(int repeats, const std::function<void()>& enqueue) {
  enqueue();
  torch::cuda::synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) enqueue();
  torch::cuda::synchronize();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() / repeats;
}

}  // namespace vox::cuda
