// What the gather adds to an affine map, both over output voxels: a smooth displacement (cubic B-spline of a coarse
// grid of control points), and whole sections that are moved (misalignment in a stack of sections).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/shape.h"

namespace vox {

struct ControlGrid {
  Extent3 points;                           // zero: no displacement; else covering_points of the output, or more
  float spacing[3] = {1, 1, 1};             // output voxels between control points; point k lies at (k - 1) * spacing
  std::array<std::vector<float>, 3> shift;  // of the source position, by source axis (z, y, x), in source voxels
};

// The points that an output of `size` voxels needs along an axis: one before it, and two after its last cell begins.
int64_t covering_points(int64_t size, float spacing);

struct Deformation {
  ControlGrid grid;
  std::vector<float> section_y, section_x;  // by output z: output voxels the section looks away; empty: none
};

}  // namespace vox
