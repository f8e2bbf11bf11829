// Maps with an elastic displacement or moved sections, a row of output voxels at a time: first all positions of the
// row, then eight voxels at once where all their taps lie in memory, else the definition.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/deformation_rows.h"
#include "kernels/gather_lanes.h"

namespace vox::gather {
namespace {

struct RowPositions {
  std::vector<float> of[3];  // by source axis, with room for a group of eight past the end

  explicit RowPositions(int64_t count) {
    for (auto& axis : of) axis.resize(static_cast<size_t>(count) + 8);
  }
};

template <class T>
void compute_positions(RowPositions& positions, DeformationRows& deformation, const RowPlan<T>& plan, int64_t z,
                       int64_t y) {
  const float from_y = static_cast<float>(y) + deformation.section_y(z), from_x = deformation.section_x(z);
  for (int axis = 0; axis < 3; ++axis) {
    float* row = positions.of[axis].data();
    if (deformation.has_grid())
      deformation.row(axis, z, y, row);
    else
      std::fill_n(row, plan.count, 0.0f);
    const float start = row_start(plan.axis[axis], static_cast<float>(z), from_y);
    for (int64_t x = 0; x < plan.count; ++x)
      row[x] = position_at(plan.axis[axis], start, static_cast<float>(x) + from_x) + row[x];
  }
}

struct GroupCheck {
  bool interior;  // every tap of all eight voxels lies in memory
  bool outside;   // no tap of any lies in the volume
};

template <class T>
GroupCheck check_group(const RowPlan<T>& plan, const __m256 (&at)[3]) {
  int interior = 0xff;
  bool outside = false;
  for (int axis = 0; axis < 3; ++axis) {
    const __m256 position = _mm256_add_ps(at[axis], _mm256_set1_ps(plan.shift));
    const auto within = [&](const Bounds& bounds) {
      return _mm256_movemask_ps(_mm256_and_ps(_mm256_cmp_ps(position, _mm256_set1_ps(bounds.low), _CMP_GE_OQ),
                                              _mm256_cmp_ps(position, _mm256_set1_ps(bounds.high), _CMP_LT_OQ)));
    };
    interior &= within(plan.interior[axis]);
    outside = outside || within(plan.inside[axis]) == 0;
  }
  return {interior == 0xff, outside && plan.source.padding == Padding::kConstant};
}

template <class T>
void fill_voxels(float* row, const RowPlan<T>& plan, const RowPositions& positions, int64_t begin, int64_t end) {
  for (int64_t x = begin; x < end; ++x) {
    const size_t i = static_cast<size_t>(x);
    row[x] = value_by_definition(plan, positions.of[0][i], positions.of[1][i], positions.of[2][i]);
  }
}

template <class T>
void fill_group(float* row, const RowPlan<T>& plan, const RowPositions& positions, int64_t x) {
  const auto load = [&](int64_t, __m256(&at)[3]) {
    for (int axis = 0; axis < 3; ++axis) at[axis] = _mm256_loadu_ps(positions.of[axis].data() + x);
  };
  __m256 at[3];
  load(x, at);
  const GroupCheck check = check_group(plan, at);
  if (check.interior)
    fill_lanes_of(row, x, x + 8, plan, load);
  else if (check.outside)
    std::fill_n(row + x, 8, plan.source.pad_value);
  else
    fill_voxels(row, plan, positions, x, x + 8);
}

template <class T>
void fill_row(float* row, const RowPlan<T>& plan, const RowPositions& positions) {
  if constexpr (kHasLanes<T>) {
    if (plan.use_lanes && plan.count >= 8) {
      for (int64_t x = 0; x + 8 <= plan.count; x += 8) fill_group(row, plan, positions, x);
      if (plan.count % 8 != 0) fill_group(row, plan, positions, plan.count - 8);
      return;
    }
  }
  fill_voxels(row, plan, positions, 0, plan.count);
}

}  // namespace

template <class T>
void deform_rows(const GatherOutput& output, const GatherSource<T>& source, const GatherMap& map,
                 Interpolation interpolation) {
  const RowPlan<T> plan = plan_within_reach(output, source, map, interpolation);
  DeformationRows deformation(*map.deformation, output.extent);
  RowPositions positions(output.extent.x);
  std::vector<float> scratch(static_cast<size_t>(output.extent.x));
  for (int64_t z = 0; z < output.extent.z; ++z) {
    for (int64_t y = 0; y < output.extent.y; ++y) {
      compute_positions(positions, deformation, plan, z, y);
      float* const in_place = row_in_place(output, z, y);
      fill_row(in_place ? in_place : scratch.data(), plan, positions);
      if (!in_place) store_row(output, z, y, scratch.data());
    }
  }
}

#define VOX_DEFORM(T) \
  template void deform_rows(const GatherOutput&, const GatherSource<T>&, const GatherMap&, Interpolation);
VOX_DEFORM(uint8_t)
VOX_DEFORM(int8_t)
VOX_DEFORM(uint16_t)
VOX_DEFORM(int16_t)
VOX_DEFORM(uint32_t)
VOX_DEFORM(int32_t)
VOX_DEFORM(float)
VOX_DEFORM(double)
#undef VOX_DEFORM

}  // namespace vox::gather
