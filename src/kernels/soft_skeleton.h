// Soft skeleton of a map of values (Shit 2021, clDice): what openings take away from the map and from its erosions,
// gathered over levels. Level k compares x_k, the map after k erosions, with its opening, the dilation of x_(k+1):
//   d_k = relu(x_k - dilate(x_(k+1)))
//   kCross, as MONAI:                S = S + relu(d_k - S d_k), levels 0 to `iterations`
//   kCube, as the public baseline:   S = S + relu(d_k - S),     levels 0 to `iterations` - 1
//
// Backward keeps nothing of the forward pass: for each level, the last one first, it erodes the map anew from the
// start. The erosions grow with the square of the iterations, and are cheap beside what a graph of them would hold;
// extra memory is 20 bytes a voxel (float), whatever the iterations. T is float or double; threads do not change a bit.
#pragma once

#include "kernels/soft_morphology.h"

namespace vox {

struct SoftSkeletonOptions {
  int iterations = 3;
  SoftErosion erosion = SoftErosion::kCross;
};

template <class T>
void soft_skeleton_cpu(T* out, const T* in, const Extent3& extent, const SoftSkeletonOptions& options,
                       ThreadPool* pool = nullptr);
template <class T>
void soft_skeleton_backward_cpu(T* grad_in, const T* grad_out, const T* in, const Extent3& extent,
                                const SoftSkeletonOptions& options, ThreadPool* pool = nullptr);

}  // namespace vox
