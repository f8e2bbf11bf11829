// Affine maps, a row of output voxels at a time. Positions along a row are monotone, so each row splits into padding,
// a border where single taps may be padding (the definition, voxel by voxel), and an interior where eight voxels at
// once need no check. Two taps that are neighbours along x are loaded as one word.
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/gather_rows.h"

namespace vox::gather {
namespace {

struct Span1 {  // half open, output x
  int64_t begin, end;
};

// Bounds on floor(position + shift) of one axis, relative to the origin: low <= . < high.
struct Bounds {
  float low, high;
};

template <class T>
constexpr bool kHasLanes = !std::is_same_v<T, uint32_t> && !std::is_same_v<T, double>;

template <class T>
struct RowPlan {
  GatherSource<T> source;
  GatherAxis axis[3];
  Interpolation interpolation;
  float shift;          // 0.5 for nearest
  Bounds inside[3];     // some tap may be inside the volume
  Bounds interior[3];   // all taps lie in memory
  int32_t lane_offset;  // of the origin from source.data, in elements, modulo 2^32
  bool use_lanes;
  int64_t count;  // voxels a row
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
RowPlan<T> make_plan(const GatherOutput& output, const GatherSource<T>& source, const GatherMap& map,
                     Interpolation interpolation) {
  RowPlan<T> plan{};
  plan.source = source;
  plan.interpolation = interpolation;
  plan.shift = interpolation == Interpolation::kNearest ? 0.5f : 0.0f;
  plan.count = output.extent.x;
  const int64_t next = interpolation == Interpolation::kLinear ? 1 : 0;
  int64_t span = 0, origin = 0;
  for (int axis = 0; axis < 3; ++axis) {
    const float* m = map.matrix[axis];
    plan.axis[axis] = {m[0], m[1], m[2], map.offset[axis]};
    const int64_t o = source.origin[axis];
    plan.inside[axis] = {static_cast<float>(-next - o), static_cast<float>(source.size[axis] - o)};
    plan.interior[axis] = {static_cast<float>(source.begin[axis] - o), static_cast<float>(source.end[axis] - next - o)};
    span += (source.end[axis] - source.begin[axis]) * source.stride[axis];
    origin += (o - source.begin[axis]) * source.stride[axis];
  }
  plan.lane_offset = static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(origin)));
  plan.use_lanes = kHasLanes<T> && span < std::numeric_limits<int32_t>::max();
  return plan;
}

// A volume of more than 2^31 voxels is cut to the slices that this patch reads, so that 32-bit offsets reach them.
template <class T>
GatherSource<T> nearby(GatherSource<T> source, const Box3& read) {
  for (int axis = 0; axis < 2; ++axis) {
    source.data += (read.begin[axis] - source.begin[axis]) * source.stride[axis];
    source.begin[axis] = read.begin[axis];
    source.end[axis] = read.end[axis];
  }
  return source;
}

struct Pair {  // neighbours along x
  __m256 low, high;
};

// Eight loads and inserts: on current machines quicker than the gather instruction, and they touch nothing but taps.
struct Offsets {
  alignas(32) int32_t of[8];
};

template <class Word>
Word word_at(const void* address) {
  Word word;
  std::memcpy(&word, address, sizeof word);
  return word;
}

template <class T>
__m128i load_16_bits(const T* base, const Offsets& offsets) {
  const auto word = [&](int lane) { return word_at<int16_t>(base + offsets.of[lane]); };
  return _mm_setr_epi16(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
}

template <class T>
__m256i load_32_bits(const T* base, const Offsets& offsets) {
  const auto word = [&](int lane) { return word_at<int32_t>(base + offsets.of[lane]); };
  return _mm256_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
}

template <class T>
__m256d load_64_bits(const T* base, const Offsets& offsets, int first) {
  const auto word = [&](int lane) { return word_at<double>(base + offsets.of[first + lane]); };
  return _mm256_setr_pd(word(0), word(1), word(4), word(5));
}

template <class T>
Pair load_pair(const T* base, const Offsets& offsets) {
  if constexpr (sizeof(T) == 1) {
    const __m128i words = load_16_bits(base, offsets);
    const bool is_signed = std::is_signed_v<T>;
    const __m128i low =
        is_signed ? _mm_srai_epi16(_mm_slli_epi16(words, 8), 8) : _mm_and_si128(words, _mm_set1_epi16(0xff));
    const __m128i high = is_signed ? _mm_srai_epi16(words, 8) : _mm_srli_epi16(words, 8);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(low)), _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(high))};
  } else if constexpr (sizeof(T) == 2) {
    const __m256i words = load_32_bits(base, offsets);
    const bool is_signed = std::is_signed_v<T>;
    const __m256i low = is_signed ? _mm256_srai_epi32(_mm256_slli_epi32(words, 16), 16)
                                  : _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
    const __m256i high = is_signed ? _mm256_srai_epi32(words, 16) : _mm256_srli_epi32(words, 16);
    return {_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)};
  } else {
    const __m256 a = _mm256_castpd_ps(load_64_bits(base, offsets, 0)),
                 b = _mm256_castpd_ps(load_64_bits(base, offsets, 2));
    const __m256 low = _mm256_shuffle_ps(a, b, 0x88), high = _mm256_shuffle_ps(a, b, 0xdd);
    if constexpr (std::is_same_v<T, float>) return {low, high};
    return {_mm256_cvtepi32_ps(_mm256_castps_si256(low)), _mm256_cvtepi32_ps(_mm256_castps_si256(high))};
  }
}

template <class T>
__m256 load_one(const T* base, const Offsets& offsets) {
  const auto value = [&](int lane) { return base[offsets.of[lane]]; };
  if constexpr (std::is_same_v<T, float>)
    return _mm256_setr_ps(value(0), value(1), value(2), value(3), value(4), value(5), value(6), value(7));
  else
    return _mm256_cvtepi32_ps(
        _mm256_setr_epi32(value(0), value(1), value(2), value(3), value(4), value(5), value(6), value(7)));
}

// As mix() of the definition; kChecked where a fraction may be zero beside a value that is not finite, or -0. Integers
// are never that.
template <bool kChecked>
__m256 mix_lanes(__m256 a, __m256 b, __m256 fraction) {
  const __m256 mixed = _mm256_fmadd_ps(fraction, _mm256_sub_ps(b, a), a);
  if constexpr (!kChecked) return mixed;
  return _mm256_blendv_ps(mixed, a, _mm256_cmp_ps(fraction, _mm256_setzero_ps(), _CMP_EQ_OQ));
}

struct Lanes {  // eight positions and the voxel each falls into
  Offsets offsets;
  __m256 fraction[3];
};

template <class T>
Lanes lanes_at(const RowPlan<T>& plan, const float (&start)[3], int64_t x) {
  const __m256 xs = _mm256_add_ps(_mm256_set1_ps(static_cast<float>(x)), _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7));
  Lanes lanes;
  __m256i index[3];
  for (int axis = 0; axis < 3; ++axis) {
    __m256 position = _mm256_fmadd_ps(_mm256_set1_ps(plan.axis[axis].x), xs, _mm256_set1_ps(start[axis]));
    if (plan.interpolation == Interpolation::kNearest) position = _mm256_add_ps(position, _mm256_set1_ps(0.5f));
    const __m256 base = _mm256_floor_ps(position);
    lanes.fraction[axis] = _mm256_sub_ps(position, base);
    index[axis] = _mm256_cvttps_epi32(base);
  }
  const __m256i z = _mm256_mullo_epi32(index[0], _mm256_set1_epi32(static_cast<int32_t>(plan.source.stride[0])));
  const __m256i y = _mm256_mullo_epi32(index[1], _mm256_set1_epi32(static_cast<int32_t>(plan.source.stride[1])));
  const __m256i x_offset = _mm256_add_epi32(index[2], _mm256_set1_epi32(plan.lane_offset));
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes.offsets.of), _mm256_add_epi32(_mm256_add_epi32(z, y), x_offset));
  return lanes;
}

bool any_fraction_is_zero(const Lanes& lanes) {
  const __m256 smallest = _mm256_min_ps(_mm256_min_ps(lanes.fraction[0], lanes.fraction[1]), lanes.fraction[2]);
  return _mm256_movemask_ps(_mm256_cmp_ps(smallest, _mm256_setzero_ps(), _CMP_EQ_OQ)) != 0;
}

template <class T, bool kScaled, bool kChecked>
__m256 interpolate_lanes(const RowPlan<T>& plan, const Lanes& lanes) {
  const __m256 scale = _mm256_set1_ps(plan.source.scale), shift = _mm256_set1_ps(plan.source.offset);
  const auto along_x = [&](int64_t row) {
    Pair pair = load_pair(plan.source.data + row, lanes.offsets);
    if constexpr (kScaled) pair = {_mm256_fmadd_ps(scale, pair.low, shift), _mm256_fmadd_ps(scale, pair.high, shift)};
    return mix_lanes<kChecked>(pair.low, pair.high, lanes.fraction[2]);
  };
  const int64_t dz = plan.source.stride[0], dy = plan.source.stride[1];
  const __m256 near = mix_lanes<kChecked>(along_x(0), along_x(dy), lanes.fraction[1]);
  const __m256 far = mix_lanes<kChecked>(along_x(dz), along_x(dz + dy), lanes.fraction[1]);
  return mix_lanes<kChecked>(near, far, lanes.fraction[0]);
}

template <class T, bool kScaled>
__m256 linear_lanes(const RowPlan<T>& plan, const float (&start)[3], int64_t x) {
  const Lanes lanes = lanes_at(plan, start, x);
  if constexpr (std::is_floating_point_v<T>)
    if (any_fraction_is_zero(lanes)) return interpolate_lanes<T, kScaled, true>(plan, lanes);
  return interpolate_lanes<T, kScaled, false>(plan, lanes);
}

template <class T, bool kScaled>
__m256 nearest_lanes(const RowPlan<T>& plan, const float (&start)[3], int64_t x) {
  const __m256 stored = load_one(plan.source.data, lanes_at(plan, start, x).offsets);
  if constexpr (!kScaled) return stored;
  return _mm256_fmadd_ps(_mm256_set1_ps(plan.source.scale), stored, _mm256_set1_ps(plan.source.offset));
}

// Whole groups of eight, the last one moved back over voxels already done: the same voxels give the same bits.
template <class Compute>
void fill_lanes(float* row, Span1 span, const Compute& compute) {
  for (int64_t x = span.begin; x + 8 <= span.end; x += 8) _mm256_storeu_ps(row + x, compute(x));
  if ((span.end - span.begin) % 8 != 0) _mm256_storeu_ps(row + span.end - 8, compute(span.end - 8));
}

template <class T>
void fill_interior(float* row, const RowPlan<T>& plan, const float (&start)[3], Span1 span) {
  const bool linear = plan.interpolation == Interpolation::kLinear;
  if (linear && plan.source.scaled)
    fill_lanes(row, span, [&](int64_t x) { return linear_lanes<T, true>(plan, start, x); });
  else if (linear)
    fill_lanes(row, span, [&](int64_t x) { return linear_lanes<T, false>(plan, start, x); });
  else if (plan.source.scaled)
    fill_lanes(row, span, [&](int64_t x) { return nearest_lanes<T, true>(plan, start, x); });
  else
    fill_lanes(row, span, [&](int64_t x) { return nearest_lanes<T, false>(plan, start, x); });
}

template <class T>
void fill_by_definition(float* row, const RowPlan<T>& plan, const float (&start)[3], Span1 span) {
  for (int64_t i = span.begin; i < span.end; ++i) {
    const float x = static_cast<float>(i);
    const float at_z = position_at(plan.axis[0], start[0], x), at_y = position_at(plan.axis[1], start[1], x),
                at_x = position_at(plan.axis[2], start[2], x);
    row[i] = plan.interpolation == Interpolation::kLinear ? gather_linear(plan.source, at_z, at_y, at_x)
                                                          : gather_nearest(plan.source, at_z, at_y, at_x);
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
  RowPlan<T> plan = make_plan(output, source, map, interpolation);
  if (kHasLanes<T> && !plan.use_lanes) {
    const Extent3 volume{source.size[0], source.size[1], source.size[2]};
    const Box3 read = read_box(map, output.extent, {interpolation, source.padding, source.pad_value}, volume);
    if (!read.empty()) plan = make_plan(output, nearby(source, read), map, interpolation);
  }
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
