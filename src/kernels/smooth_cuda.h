// The mean over the 3x3x3 voxels around each voxel, of those that exist, and its adjoint (its gradient), in float32.
#pragma once

#include "kernels/cuda.h"

namespace vox::cuda {

enum class SmoothWay : uint8_t { kForward, kGradient };
// `volumes` volumes [z][y][x]; y must not be x.
struct Volumes {
  int64_t volumes = 1, z = 1, y = 1, x = 1;
};
bool smooth_available(const Volumes& shape);
void smooth(const float* from, float* to, const Volumes& shape, SmoothWay way, Stream stream);

}  // namespace vox::cuda
