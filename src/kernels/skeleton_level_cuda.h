// The gradient of one level of a soft skeleton on the GPU: from that of the skeleton and that of the map after the next
// erosion to that of the map before it. Three kernels, four voxels a thread, none of which needs its neighbours' help:
//   1. what the level adds gets its gradient, which carries in its six lowest bits where the largest value is that the
//      opening takes (a relative error of 4e-6 at most);
//   2. the gradients that name a voxel are gathered there; where the cross finds its least values is noted;
//   3. likewise through the erosion by the cross. That by the cube is kernels/soft_morphology_cuda.h's.
#pragma once

#include "kernels/soft_skeleton_cuda.h"

namespace vox {

struct LevelGradient {
  const float* current;  // the map at this level
  float* next;           // and after one more erosion; is written over
  const float* state;    // see soft_skeleton_cuda.h
  OuterGradient outer;
  float* grad;       // out: of `current`
  float* grad_next;  // of `next` by the levels after this one; is written over
  int level = 0;
  bool last = false;  // no level comes after this one: grad_next has nothing yet
};
void skeleton_level_backward(const LevelGradient& gradient, const VolumeBatch& batch, SoftErosion erosion,
                             cuda::Stream stream);

}  // namespace vox
