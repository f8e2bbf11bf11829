// Soft skeletons on the GPU: the twin of kernels/soft_skeleton.h for maps of probabilities (values from 0 to 1),
// forward and backward by recomputing. What a level adds to the skeleton never exceeds what erosion took from the
// voxel, so
//   kCross: S = 1 - product of (1 - d_k), and the gradient of d_k is that of S times the product over the others;
//   kCube:  S = the largest d_k, and the first level that reached it has the gradient.
// One number a voxel, the product or that level, hence serves all levels backward, and only erosions are repeated.
//
// Memory a voxel, whatever the iterations: forward two maps (8 bytes) beside `out`; backward those, the number above
// and two gradients, one of them `grad_in` (20 bytes). cldice_cuda.h counts a whole loss.
#pragma once

#include "kernels/soft_morphology_cuda.h"
#include "kernels/soft_skeleton.h"

namespace vox {

// Floats of workspace, for a forward or a backward pass.
int64_t soft_skeleton_workspace(const VolumeBatch& batch);
int64_t soft_skeleton_backward_workspace(const VolumeBatch& batch);

void soft_skeleton_cuda(float* out, const float* in, const VolumeBatch& batch, const SoftSkeletonOptions& options,
                        float* workspace, cuda::Stream stream);
void soft_skeleton_backward_cuda(float* grad_in, const float* grad_out, const float* in, const VolumeBatch& batch,
                                 const SoftSkeletonOptions& options, float* workspace, cuda::Stream stream);

// The parts of both, for losses that keep something between them.
struct SkeletonPass {
  const float* in;
  VolumeBatch batch;
  SoftSkeletonOptions options;
  float* eroded[2];
  float* middle;  // the map of the level in the middle, kept from forward to backward; null: nothing flows back
  cuda::Stream stream;
};
// `state` null where nothing flows back.
void skeleton_forward(const SkeletonPass& pass, float* skeleton, float* state);

// Gradient of the skeleton: map * factors[2 volume] + factors[2 volume + 1], times `valid`.
struct OuterGradient {
  const float* map;
  const float* factors = nullptr;  // null: 1 and 0
  const float* valid = nullptr;    // a map for `channels` volumes each; null: 1
  int64_t first_volume = 0, channels = 1;
};
// Right after skeleton_forward of the same pass. `scratch` as large as grad_in.
void skeleton_backward(const SkeletonPass& pass, float* grad_in, float* scratch, const float* state,
                       const OuterGradient& outer);

}  // namespace vox
