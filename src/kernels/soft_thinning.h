// A skeleton by thinning that lets gradients through, after Menten et al. 2023 ("A skeletonization algorithm for
// gradient-based optimization"). A map of probabilities is rounded to a mask, with logistic noise on its logits so that
// voxels count as often as they are probable; border voxels that are simple (foreground connects through corners,
// background through faces) and no ends of lines are then peeled off. An iteration takes those that lie on the border
// at its beginning, in eight subfields of voxels that do not touch one another; each subfield is one multiplication
//   x(v) = x(v) (1 - s(v)),  s(v) = 1 where the neighbours of v allow it to go.
// The mask keeps its components, tunnels and cavities, whatever the iterations.
//
// Gradients: rounding passes them straight through, and the chain of multiplications is differentiated with s as the
// multilinear function of its neighbours that has these values on masks: the derivative by a neighbour is s with it
// less s without it. A voxel goes once, so that the number of the subfield that took it (2 bytes a voxel) tells all
// states of the chain backward.
#pragma once

#include <cstdint>

#include "base/shape.h"

namespace vox {

struct SoftThinningOptions {
  int iterations = 3;
  double noise = 0;  // factor of the logistic noise; 0: round at one half
  uint64_t seed = 0;
  int64_t volume = 0;  // noise depends on seed, volume and voxel alone
};

// T is float or double; out: 0 and 1. `taken` has a number a voxel, for the backward pass.
template <class T>
void soft_thinning_cpu(T* out, int16_t* taken, const T* in, const Extent3& extent, const SoftThinningOptions& options);
template <class T>
void soft_thinning_backward_cpu(T* grad_in, const T* grad_out, const int16_t* taken, const T* in, const Extent3& extent,
                                const SoftThinningOptions& options);

// The chain alone, from a mask: what the above do between rounding and the end. grad: from that of the skeleton to that
// of the mask.
void thin_by_subfields_cpu(int16_t* taken, const uint8_t* mask, const Extent3& extent, int iterations);
void thin_by_subfields_backward_cpu(double* grad, const int16_t* taken, const Extent3& extent, int iterations);

constexpr int16_t kNeverInside = -1, kNeverTaken = 32767;  // in `taken`

}  // namespace vox
