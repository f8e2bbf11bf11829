// Displacements a row of output voxels at a time, to the bit as deformation_point.h defines them, and their bounds.
#pragma once

#include <vector>

#include "kernels/deformation.h"
#include "kernels/deformation_point.h"

namespace vox {

class DeformationRows {
 public:
  DeformationRows(const Deformation& deformation, const Extent3& output);

  bool has_grid() const { return grid_.points.voxels() > 0; }
  float section_y(int64_t z) const { return sections_.section_y.empty() ? 0 : sections_.section_y[index(z)]; }
  float section_x(int64_t z) const { return sections_.section_x.empty() ? 0 : sections_.section_x[index(z)]; }
  // out[x] for the whole row and one source axis; room for 8 values more.
  void row(int axis, int64_t z, int64_t y, float* out);

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }
  const ControlGrid& grid_;
  const Deformation& sections_;
  std::vector<SplineWeights> along_[3];  // by output axis
  std::vector<float> weight_[4];         // along x, by tap
  std::vector<int64_t> cell_begin_;      // first x of each cell; last: the row's length
  std::vector<int64_t> cells_;           // control point of each of them
  std::vector<float> coefficients_;
};

// Least and greatest displacement over blocks of output voxels that share their control points.
struct DisplacementBlock {
  Box3 output;
  float low[3], high[3];  // by source axis, the section's shift not included
};
std::vector<DisplacementBlock> displacement_blocks(const Deformation& deformation, const Extent3& output);

}  // namespace vox
