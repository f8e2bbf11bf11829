// A smooth random field: normal values on a coarse lattice, joined by smooth interpolation (value noise). Zero mean,
// variance about one half, and a pure function of (seed, stream, position).
#pragma once

#include <cstdint>
#include <vector>

#include "base/shape.h"

namespace vox {

class SmoothField {
 public:
  // `cell` is the distance between lattice points in voxels.
  SmoothField(uint64_t seed, uint32_t stream, const Extent3& extent, double cell);

  // out[x] = field(z, y, x) for the whole row.
  void row(int64_t z, int64_t y, std::vector<float>& out) const;

 private:
  Extent3 lattice_;
  double cell_;
  int64_t width_;
  std::vector<float> values_;
};

}  // namespace vox
