#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include "ops/device.h"

namespace vox::ops {

cuda::Stream current_stream(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

}  // namespace vox::ops
