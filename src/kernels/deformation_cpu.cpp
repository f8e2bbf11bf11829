#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/deformation_rows.h"

namespace vox {

int64_t covering_points(int64_t size, float spacing) {
  return static_cast<int64_t>(std::floor(static_cast<float>(size - 1) / spacing)) + 4;
}

DeformationRows::DeformationRows(const Deformation& deformation, const Extent3& output)
    : grid_(deformation.grid), sections_(deformation) {
  VOX_ASSERT(deformation.section_y.empty() || static_cast<int64_t>(deformation.section_y.size()) >= output.z);
  VOX_ASSERT(deformation.section_x.size() == deformation.section_y.size());
  if (!has_grid()) return;
  for (int axis = 0; axis < 3; ++axis) {
    VOX_ASSERT(grid_.points[axis] >= covering_points(output[axis], grid_.spacing[axis]));
    VOX_ASSERT(static_cast<int64_t>(grid_.shift[static_cast<size_t>(axis)].size()) == grid_.points.voxels());
    for (int64_t o = 0; o < output[axis]; ++o)
      along_[axis].push_back(spline_weights(static_cast<float>(o), grid_.spacing[axis], grid_.points[axis]));
  }
  for (int tap = 0; tap < 4; ++tap)
    for (const SplineWeights& at : along_[2]) weight_[tap].push_back(at.weight[tap]);
  for (auto& weights : weight_) weights.resize(weights.size() + 8);  // groups of eight may reach past the row
  for (int64_t x = 0; x < output.x; ++x) {
    if (!cells_.empty() && along_[2][index(x)].cell == cells_.back()) continue;
    cell_begin_.push_back(x);
    cells_.push_back(along_[2][index(x)].cell);
  }
  cell_begin_.push_back(output.x);
  coefficients_.resize(index(grid_.points.x));
}

// Cell by cell from left to right: what a group of eight writes past its cell, the next cell writes anew.
void DeformationRows::row(int axis, int64_t z, int64_t y, float* out) {
  const float* points = grid_.shift[static_cast<size_t>(axis)].data();
  const int64_t width = grid_.points.x, slice = grid_.points.y * width;
  const SplineWeights &at_z = along_[0][index(z)], &at_y = along_[1][index(y)];
  for (int64_t k = 0; k < width; ++k) coefficients_[index(k)] = row_coefficient(points, slice, width, at_z, at_y, k);
  for (size_t i = 0; i < cells_.size(); ++i) {
    const float* c = coefficients_.data() + cells_[i];
    const __m256 c0 = _mm256_set1_ps(c[0]), c1 = _mm256_set1_ps(c[1]), c2 = _mm256_set1_ps(c[2]),
                 c3 = _mm256_set1_ps(c[3]);
    for (int64_t x = cell_begin_[i]; x < cell_begin_[i + 1]; x += 8) {
      __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(weight_[0].data() + x), c0);
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(weight_[1].data() + x), c1, sum);
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(weight_[2].data() + x), c2, sum);
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(weight_[3].data() + x), c3, sum);
      _mm256_storeu_ps(out + x, sum);
    }
  }
}

namespace {

struct Interval {
  int64_t begin, end, cell;
};

// Output voxels of an axis by the cell they fall into.
std::vector<Interval> cells_of(const ControlGrid& grid, int axis, int64_t size) {
  std::vector<Interval> cells;
  for (int64_t o = 0; o < size; ++o) {
    const int64_t cell = spline_weights(static_cast<float>(o), grid.spacing[axis], grid.points[axis]).cell;
    if (cells.empty() || cells.back().cell != cell) cells.push_back({o, o, cell});
    cells.back().end = o + 1;
  }
  return cells;
}

void bound(const ControlGrid& grid, const Interval& z, const Interval& y, const Interval& x, DisplacementBlock& block) {
  for (size_t axis = 0; axis < 3; ++axis) {
    float low = INFINITY, high = -INFINITY;
    for (int64_t a = 0; a < 4; ++a)
      for (int64_t b = 0; b < 4; ++b) {
        const float* from =
            grid.shift[axis].data() + ((z.cell + a) * grid.points.y + y.cell + b) * grid.points.x + x.cell;
        for (int k = 0; k < 4; ++k) {
          low = std::min(low, from[k]);
          high = std::max(high, from[k]);
        }
      }
    // Weights sum to one but for roundings, some thirty of them.
    const float slack = 4e-6f * std::max(std::abs(low), std::abs(high));
    block.low[axis] = low - slack;
    block.high[axis] = high + slack;
  }
}

}  // namespace

std::vector<DisplacementBlock> displacement_blocks(const Deformation& deformation, const Extent3& output) {
  if (deformation.grid.points.voxels() == 0) return {{whole(output), {0, 0, 0}, {0, 0, 0}}};
  std::vector<DisplacementBlock> blocks;
  const auto along_y = cells_of(deformation.grid, 1, output.y), along_x = cells_of(deformation.grid, 2, output.x);
  for (const Interval& z : cells_of(deformation.grid, 0, output.z))
    for (const Interval& y : along_y)
      for (const Interval& x : along_x) {
        DisplacementBlock block{{{z.begin, y.begin, x.begin}, {z.end, y.end, x.end}}, {}, {}};
        bound(deformation.grid, z, y, x, block);
        blocks.push_back(block);
      }
  return blocks;
}

}  // namespace vox
