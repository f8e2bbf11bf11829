// Smoothing of a patch by separable kernels; beyond its border the patch is mirrored about the border voxel.
#pragma once

#include <cstdint>
#include <vector>

#include "base/shape.h"

namespace vox {

// Half of a symmetric kernel, from its centre outwards; the whole sums to one. The kernel has the odd number of taps
// nearest to 6 sigma + 0.5.
std::vector<float> gaussian_half_kernel(double sigma);

// Gaussian of its own width along each axis, in voxels; no smoothing along an axis whose sigma is 0.
void gaussian_blur_cpu(float* data, const Extent3& extent, const double (&sigma)[3]);

// One axis, by any symmetric kernel.
void symmetric_blur_cpu(float* data, const Extent3& extent, int axis, const std::vector<float>& half_kernel);

}  // namespace vox
