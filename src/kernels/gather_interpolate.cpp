// Affine maps, a row of output voxels at a time. Positions along a row are monotone, so each row splits into padding,
// a border where single taps may be padding (the definition, voxel by voxel), and an interior where eight voxels at
// once need no check.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/gather_lanes.h"

namespace vox::gather {
namespace {

struct Span1 {  // half open, output x
  int64_t begin, end;
};

// The first x in 0 .. count whose position is no longer on the near side of `bound`: >= bound where the axis rises
// with x, < bound where it falls. The estimate only starts the search; the float32 positions decide.
int64_t crossing(const GatherAxis& axis, float start, float shift, float bound, int64_t count) {
  const bool rising = axis.x > 0;
  const auto crossed = [&](int64_t x) {
    return (position_at(axis, start, static_cast<float>(x)) + shift >= bound) == rising;
  };
  const float estimate = (bound - shift - start) / axis.x;
  int64_t x = estimate > 0 ? static_cast<int64_t>(std::min(estimate, static_cast<float>(count))) : 0;
  while (x > 0 && crossed(x - 1)) --x;
  while (x < count && !crossed(x)) ++x;
  return x;
}

Span1 clip_to(const Bounds& bounds, const GatherAxis& axis, float start, float shift, Span1 span) {
  const auto at = [&](int64_t x) { return position_at(axis, start, static_cast<float>(x)) + shift; };
  if (span.begin >= span.end) return span;
  const float first = at(span.begin), last = at(span.end - 1);
  const float smallest = std::min(first, last), largest = std::max(first, last);
  if (smallest >= bounds.low && largest < bounds.high) return span;
  if (largest < bounds.low || smallest >= bounds.high) return {span.begin, span.begin};
  if (axis.x > 0) {
    if (smallest < bounds.low) span.begin = std::max(span.begin, crossing(axis, start, shift, bounds.low, span.end));
    if (largest >= bounds.high) span.end = std::min(span.end, crossing(axis, start, shift, bounds.high, span.end));
  } else {
    if (smallest < bounds.low) span.end = std::min(span.end, crossing(axis, start, shift, bounds.low, span.end));
    if (largest >= bounds.high) span.begin = std::max(span.begin, crossing(axis, start, shift, bounds.high, span.end));
  }
  return span;
}

template <class T>
Span1 clip_row(const RowPlan<T>& plan, const Bounds (&bounds)[3], const float (&start)[3], Span1 span) {
  for (int axis = 0; axis < 3; ++axis) span = clip_to(bounds[axis], plan.axis[axis], start[axis], plan.shift, span);
  return span;
}

template <class T>
void fill_interior(float* row, const RowPlan<T>& plan, const float (&start)[3], Span1 span) {
  fill_lanes_of(row, span.begin, span.end, plan, [&](int64_t x, __m256(&at)[3]) {
    const __m256 xs = _mm256_add_ps(_mm256_set1_ps(static_cast<float>(x)), _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7));
    for (int axis = 0; axis < 3; ++axis)
      at[axis] = _mm256_fmadd_ps(_mm256_set1_ps(plan.axis[axis].x), xs, _mm256_set1_ps(start[axis]));
  });
}

template <class T>
void fill_by_definition(float* row, const RowPlan<T>& plan, const float (&start)[3], Span1 span) {
  for (int64_t i = span.begin; i < span.end; ++i) {
    const float x = static_cast<float>(i);
    row[i] = value_by_definition(plan, position_at(plan.axis[0], start[0], x), position_at(plan.axis[1], start[1], x),
                                 position_at(plan.axis[2], start[2], x));
  }
}

template <class T>
void fill_row(float* row, const RowPlan<T>& plan, int64_t z, int64_t y) {
  float start[3];
  for (int axis = 0; axis < 3; ++axis)
    start[axis] = row_start(plan.axis[axis], static_cast<float>(z), static_cast<float>(y));
  Span1 inside{0, plan.count};
  if (plan.source.padding == Padding::kConstant) {
    inside = clip_row(plan, plan.inside, start, inside);
    std::fill(row, row + inside.begin, plan.source.pad_value);
    std::fill(row + inside.end, row + plan.count, plan.source.pad_value);
  }
  Span1 interior{inside.begin, inside.begin};
  if constexpr (kHasLanes<T>) {
    if (plan.use_lanes) interior = clip_row(plan, plan.interior, start, inside);
    if (interior.end - interior.begin < 8) interior = {inside.begin, inside.begin};
    if (interior.begin < interior.end) fill_interior(row, plan, start, interior);
  }
  fill_by_definition(row, plan, start, {inside.begin, interior.begin});
  fill_by_definition(row, plan, start, {interior.end, inside.end});
}

}  // namespace

template <class T>
void interpolate_rows(const GatherOutput& output, const GatherSource<T>& source, const GatherMap& map,
                      Interpolation interpolation) {
  const RowPlan<T> plan = plan_within_reach(output, source, map, interpolation);
  std::vector<float> scratch(static_cast<size_t>(output.extent.x));
  for (int64_t z = 0; z < output.extent.z; ++z) {
    for (int64_t y = 0; y < output.extent.y; ++y) {
      float* const in_place = row_in_place(output, z, y);
      fill_row(in_place ? in_place : scratch.data(), plan, z, y);
      if (!in_place) store_row(output, z, y, scratch.data());
    }
  }
}

#define VOX_INTERPOLATE(T) \
  template void interpolate_rows(const GatherOutput&, const GatherSource<T>&, const GatherMap&, Interpolation);
VOX_INTERPOLATE(uint8_t)
VOX_INTERPOLATE(int8_t)
VOX_INTERPOLATE(uint16_t)
VOX_INTERPOLATE(int16_t)
VOX_INTERPOLATE(uint32_t)
VOX_INTERPOLATE(int32_t)
VOX_INTERPOLATE(float)
VOX_INTERPOLATE(double)
#undef VOX_INTERPOLATE

}  // namespace vox::gather
