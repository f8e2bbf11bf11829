// The definition of a deformed position, one output voxel at a time, for the CPU and the GPU.
//
// - The section's shift moves the output voxel: y + section_y[z], x + section_x[z]; the affine map takes it from there.
// - Along each output axis u = o / spacing, cell = floor(u) (the last cell where there is no further one), t = u -
// cell,
//   and the four weights are those of the uniform cubic B-spline, in float32.
// - Displacement: first the 16 columns of (z, y) collapse to one coefficient per control point along x, by fma in the
//   order of z, then y; then four taps along x by fma. It is added to the affine position.
// A cubic B-spline never leaves the hull of its control points: that bounds what a patch reads.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"

namespace vox {

struct SplineWeights {
  int64_t cell;
  float weight[4];
};

VOX_HOST_DEVICE SplineWeights spline_weights(float o, float spacing, int64_t points) {
  const float u = o / spacing;
  float base = std::floor(u);
  const float last = static_cast<float>(points - 4);
  base = base > last ? last : base;
  const float t = u - base, s = 1.0f - t, t2 = t * t, sixth = 1.0f / 6.0f;
  return {static_cast<int64_t>(base),
          {s * s * s * sixth, std::fma(t2, std::fma(0.5f, t, -1.0f), 4.0f * sixth),
           std::fma(std::fma(std::fma(-0.5f, t, 0.5f), t, 0.5f), t, sixth), t2 * t * sixth}};
}

// Coefficient of control point `k` along x for one (z, y): `points` of one source axis, rows of `width`, slices of
// `slice` values.
VOX_HOST_DEVICE float row_coefficient(const float* points, int64_t slice, int64_t width, const SplineWeights& z,
                                      const SplineWeights& y, int64_t k) {
  float sum = 0.0f;
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b)
      sum = std::fma(z.weight[a] * y.weight[b], points[(z.cell + a) * slice + (y.cell + b) * width + k], sum);
  return sum;
}

VOX_HOST_DEVICE float spline_value(const SplineWeights& x, const float* coefficients) {
  const float* c = coefficients + x.cell;
  return std::fma(x.weight[3], c[3], std::fma(x.weight[2], c[2], std::fma(x.weight[1], c[1], x.weight[0] * c[0])));
}

}  // namespace vox
