// Erosion and dilation of maps of values: the least or the largest value near each voxel. Beyond the edge of the volume
// there is nothing. Forward and backward, as torch's max_pool3d of three voxels and the minimum of three such poolings:
// of equal values the first (z, y, x) takes the gradient, and where axes are equal they share it.
//
// T is float or double. `pool` null: this thread alone; threads do not change a bit.
#pragma once

#include "base/shape.h"

namespace vox {

class ThreadPool;

enum class SoftErosion {
  kCross,  // a voxel and its six face neighbours, as MONAI
  kCube,   // all 27
};

template <class T>
void soft_erode_cpu(T* out, const T* in, const Extent3& extent, SoftErosion erosion, ThreadPool* pool = nullptr);
template <class T>
void soft_dilate_cpu(T* out, const T* in, const Extent3& extent, ThreadPool* pool = nullptr);  // by the cube

// What flows back through them; added to grad_in, `factor` times.
template <class T>
void soft_erode_backward_cpu(T* grad_in, const T* grad_out, const T* in, const Extent3& extent, SoftErosion erosion,
                             T factor, ThreadPool* pool = nullptr);
template <class T>
void soft_dilate_backward_cpu(T* grad_in, const T* grad_out, const T* in, const Extent3& extent, T factor,
                              ThreadPool* pool = nullptr);

}  // namespace vox
