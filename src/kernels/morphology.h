// Dilation and closing of masks by the cross of a voxel and its six face neighbours. Beyond the edge of the volume
// nothing is known: it neither grows inwards nor eats away, as in scikit-image. Results hold 0 and 1; `out` may be
// `mask`.
#pragma once

#include <cstdint>

#include "base/shape.h"

namespace vox {

void dilate_cpu(uint8_t* out, const uint8_t* mask, const Extent3& extent, int times = 1);
void close_cpu(uint8_t* out, const uint8_t* mask, const Extent3& extent);  // dilation, then erosion

}  // namespace vox
