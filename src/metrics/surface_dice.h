// Surface Dice (Nikolov 2018): the share of two surfaces that lies within a tolerance of the other one. The surface
// passes through cells of 2x2x2 voxels that are neither all inside nor all outside (nothing is inside beyond the
// volume); each weighs the area that marching cubes gives it, as the surface-distance package has it for cubic voxels.
#pragma once

#include <cstdint>

#include "base/shape.h"

namespace vox {

class ThreadPool;

// 1 where both masks are empty, 0 where one is. `tolerance` in voxels.
double surface_dice(const uint8_t* a, const uint8_t* b, const Extent3& extent, double tolerance, ThreadPool& pool);
// Of the corners of a cell that are inside, a bit each: bit 0 and bit 1 are neighbours along x, 0 and 2 along y, 0 and
// 4 along z.
double cell_area(uint8_t corners);

}  // namespace vox
