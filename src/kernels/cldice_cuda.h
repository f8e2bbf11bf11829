// clDice (Shit 2021) on the GPU, value and gradient in one go: with S a soft skeleton, p a probability and t a target,
//   P = (sum(S(p) t) + s) / (sum(S(p)) + s),  R = (sum(S(t) p) + s) / (sum(S(t)) + s),  loss = 1 - 2 P R / (P + R)
// for each volume by itself. Volumes are worked on in groups, one at a time where they are large, so that the workspace
// is that of one group: 24 bytes a voxel of the group (the probability, three eroded maps, the product over levels, and
// a gradient whose place the target's skeleton takes at last), beside 4 bytes a voxel of the whole batch for the
// gradient, and 3 bits for the skeletons of targets that are masks. Two volumes of a million voxels hence take 16 bytes
// a voxel, whatever the iterations.
#pragma once

#include "kernels/soft_skeleton_cuda.h"

namespace vox {

struct ClDiceInput {
  const float* values;  // probabilities that are 0 where `valid` is; or logits of one channel
  bool logits = false;
  const float* target;           // from 0 to 1
  bool mask = false;             // the target has no values but 0 and 1
  const float* valid = nullptr;  // 0 and 1, a map for `channels` volumes each; null: all
  int64_t channels = 1;
  VolumeBatch batch;
  SoftSkeletonOptions options;
  double smooth = 1;
};

// Floats.
int64_t cldice_workspace(const VolumeBatch& batch);
// loss[volume]; grad, of the sum of these losses with respect to `values`, as large as those; null: not wanted.
void cldice_cuda(float* loss, float* grad, const ClDiceInput& input, float* workspace, cuda::Stream stream);

}  // namespace vox
