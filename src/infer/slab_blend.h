// The sums of the windows under way: a ring of as many slices as a window is deep, over whole slices of the volume.
// Slices that no later window touches are taken out, so that memory does not grow with the depth of the volume.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/shape.h"
#include "infer/windows.h"

namespace vox {

class SlabBlend {
 public:
  SlabBlend(const Extent3& volume, const Extent3& window, Blend blend, int64_t channels, const at::Device& device);

  // `output` is [C, Z, Y, X] of the window at `begin`. Windows come by ascending z.
  void add(const Extent3& begin, const at::Tensor& output);

  // The mean of slices z_begin .. z_end, [C, slices, Y, X]; no later window may touch them. Where no window was, the
  // background is certain: minus infinity, but 0 in the first of several channels.
  at::Tensor take(int64_t z_begin, int64_t z_end);
  void drop(int64_t z_begin, int64_t z_end);
  int64_t channels() const { return sum_.size(0); }

 private:
  Extent3 volume_, window_;
  at::Tensor weights_;     // [Z, Y, X] of the window
  at::Tensor sum_;         // [C, slots, Y, X]
  at::Tensor weight_sum_;  // [slots, Y, X]
};

}  // namespace vox
