// Connected components of a mask, or of each label of a label volume, in 3-D. Components are numbered from 1 in the
// order of their first voxels (z, y, x); 0 is the background.
#pragma once

#include <cstdint>
#include <vector>

#include "base/shape.h"

namespace vox {

enum class Connectivity { kFaces = 6, kEdges = 18, kCorners = 26 };

// Each returns the number of components. A mask's foreground is whatever is not zero.
int64_t components_cpu(uint32_t* labels, const uint8_t* mask, const Extent3& extent, Connectivity connectivity);
// Voxels are connected where they hold the same value other than 0.
int64_t label_components_cpu(uint32_t* labels, const uint8_t* values, const Extent3& extent, Connectivity connectivity);
int64_t label_components_cpu(uint32_t* labels, const uint16_t* values, const Extent3& extent,
                             Connectivity connectivity);
int64_t label_components_cpu(uint32_t* labels, const uint32_t* values, const Extent3& extent,
                             Connectivity connectivity);

// The same without a volume of labels: runs of voxels along x, in their order, and the component of each. Small where
// the mask is smooth, so that counting and measuring components cost little more than reading the mask.
struct Run {
  int32_t begin, end;  // half open, along x
  uint32_t component;  // from 0
};
struct RunComponents {
  std::vector<Run> runs;
  std::vector<int64_t> rows;  // runs of row (z * extent.y + y) are rows[row] .. rows[row + 1]
  int64_t count = 0;          // of components
};
enum class Part { kForeground, kBackground };
RunComponents run_components(const uint8_t* mask, const Extent3& extent, Connectivity connectivity,
                             Part part = Part::kForeground);

}  // namespace vox
