// Helpers of this folder's tests.
#pragma once

#include "augment/augment.h"

namespace vox {

// Every transform on, every time.
inline AugmentationOptions all_on() {
  AugmentationOptions o;
  const auto each = [](auto&... transforms) { ((transforms.enabled = true, transforms.prob = 1.0), ...); };
  each(o.flip, o.rot90, o.transpose, o.rotate, o.scale, o.shift, o.shear, o.elastic, o.misalignment, o.noise, o.blur,
       o.sharpen, o.brightness, o.brightness_add, o.brightness_gradient, o.contrast, o.low_resolution, o.gamma_inverted,
       o.gamma, o.invert, o.slice_illumination, o.cutout, o.cut_noise, o.missing_section, o.dropped_section,
       o.blurred_section, o.motion_blur);
  return o;
}

}  // namespace vox
