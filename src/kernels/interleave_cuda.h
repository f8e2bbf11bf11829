// From float32 volumes one channel after the other (torch's contiguous) to half precision with the channels last.
#pragma once

#include "kernels/cuda.h"

namespace vox::cuda {

bool interleave_available(const Shape5& shape);
void interleave(const float* from, void* to, Scalar type, const Shape5& shape, Stream stream);

}  // namespace vox::cuda
