#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ops/device.h"

namespace vox::ops {

cuda::Stream current_stream(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

at::Tensor empty_outside_of_graphs(const std::vector<int64_t>& size, const at::Tensor& like) {
  // Pools belong to the stream that is captured, so another one is current meanwhile; the mode lets this thread ask the
  // driver for memory although one of its streams is being captured.
  const c10::cuda::CUDAStreamCaptureModeGuard mode(cudaStreamCaptureModeRelaxed);
  const c10::cuda::CUDAStreamGuard other(c10::cuda::getStreamFromPool(true, like.device().index()));
  return at::empty(size, like.options());
}

}  // namespace vox::ops
