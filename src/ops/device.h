// The stream on which torch enqueues work of a tensor's device, for our own kernels to follow it there.
#pragma once

#include "kernels/cuda.h"

namespace at {
class Tensor;
}

namespace vox::ops {

cuda::Stream current_stream(const at::Tensor& tensor);

}  // namespace vox::ops
