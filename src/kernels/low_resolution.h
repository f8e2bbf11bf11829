// A patch as a scanner of lower resolution would have shown it.
#pragma once

#include "base/shape.h"

namespace vox {

// Takes the nearest voxels of a coarser grid of `coarse` voxels over the same region, and interpolates them linearly
// back to the patch's. Voxels are areas: both grids begin and end at the same borders.
void low_resolution_cpu(float* data, const Extent3& extent, const Extent3& coarse);

}  // namespace vox
