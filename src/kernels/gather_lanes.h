// Inside the gather: eight voxels at once. Two taps that are neighbours along x are loaded as one word.
#pragma once

#include <immintrin.h>

#include <limits>
#include <type_traits>

#include "kernels/gather_rows.h"

namespace vox::gather {

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

template <class T>
RowPlan<T> make_plan(const GatherOutput& output, const GatherSource<T>& source, const GatherMap& map,
                     Interpolation interpolation) {
  RowPlan<T> plan{};
  plan.source = source;
  plan.interpolation = interpolation;
  plan.shift = interpolation == Interpolation::kNearest ? 0.5f : 0.0f;
  plan.count = output.extent.x;
  const int64_t next = interpolation == Interpolation::kNearest ? 0 : 1;
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

template <class T>
RowPlan<T> plan_within_reach(const GatherOutput& output, const GatherSource<T>& source, const GatherMap& map,
                             Interpolation interpolation) {
  const RowPlan<T> plan = make_plan(output, source, map, interpolation);
  if (!kHasLanes<T> || plan.use_lanes) return plan;
  const Extent3 volume{source.size[0], source.size[1], source.size[2]};
  const Box3 read = read_box(map, output.extent, {interpolation, source.padding, source.pad_value}, volume);
  return read.empty() ? plan : make_plan(output, nearby(source, read), map, interpolation);
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
Lanes lanes_of(const RowPlan<T>& plan, const __m256 (&at)[3]) {
  Lanes lanes;
  __m256i index[3];
  for (int axis = 0; axis < 3; ++axis) {
    __m256 position = at[axis];
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

inline bool any_fraction_is_zero(const Lanes& lanes) {
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

template <class T>
__m256 labels_by_definition(const RowPlan<T>& plan, const __m256 (&at)[3], __m256 chosen, int known) {
  alignas(32) float z[8], y[8], x[8], out[8];
  _mm256_store_ps(z, at[0]);
  _mm256_store_ps(y, at[1]);
  _mm256_store_ps(x, at[2]);
  _mm256_store_ps(out, chosen);
  for (int lane = 0; lane < 8; ++lane)
    if (!(known >> lane & 1)) out[lane] = gather_label(plan.source, z[lane], y[lane], x[lane]);
  return _mm256_load_ps(out);
}

template <class T, bool kScaled>
__m256 linear_lanes(const RowPlan<T>& plan, const __m256 (&at)[3]) {
  const Lanes lanes = lanes_of(plan, at);
  if constexpr (std::is_floating_point_v<T>)
    if (any_fraction_is_zero(lanes)) return interpolate_lanes<T, kScaled, true>(plan, lanes);
  return interpolate_lanes<T, kScaled, false>(plan, lanes);
}

template <class T, bool kScaled>
__m256 nearest_lanes(const RowPlan<T>& plan, const __m256 (&at)[3]) {
  const __m256 stored = load_one(plan.source.data, lanes_of(plan, at).offsets);
  if constexpr (!kScaled) return stored;
  return _mm256_fmadd_ps(_mm256_set1_ps(plan.source.scale), stored, _mm256_set1_ps(plan.source.offset));
}

// What eight voxels see in their taps: the lowest and the highest label, which taps are the highest (1 or 0), and in
// which voxels no tap is anything else.
struct LabelTaps {
  __m256 low, high;
  Pair is_high[4];
  int two_labels;
};

template <class T>
LabelTaps label_taps(const T* base, const int64_t (&rows)[4], const Offsets& offsets) {
  Pair taps[4];
  for (int i = 0; i < 4; ++i) taps[i] = load_pair(base + rows[i], offsets);
  LabelTaps seen;
  seen.low = _mm256_min_ps(taps[0].low, taps[0].high), seen.high = _mm256_max_ps(taps[0].low, taps[0].high);
  for (int i = 1; i < 4; ++i) {
    seen.low = _mm256_min_ps(seen.low, _mm256_min_ps(taps[i].low, taps[i].high));
    seen.high = _mm256_max_ps(seen.high, _mm256_max_ps(taps[i].low, taps[i].high));
  }
  __m256 two_labels = _mm256_cmp_ps(seen.low, seen.low, _CMP_EQ_OQ);
  const auto is_high = [&](__m256 tap) {
    const __m256 equal = _mm256_cmp_ps(tap, seen.high, _CMP_EQ_OQ);
    two_labels = _mm256_and_ps(two_labels, _mm256_or_ps(equal, _mm256_cmp_ps(tap, seen.low, _CMP_EQ_OQ)));
    return _mm256_and_ps(equal, _mm256_set1_ps(1.0f));
  };
  for (int i = 0; i < 4; ++i) seen.is_high[i] = {is_high(taps[i].low), is_high(taps[i].high)};
  seen.two_labels = _mm256_movemask_ps(two_labels);
  return seen;
}

// The same on bytes, sixteen at once: both taps of a voxel are the halves of a word.
inline LabelTaps label_taps(const uint8_t* base, const int64_t (&rows)[4], const Offsets& offsets) {
  __m128i words[4];
  for (int i = 0; i < 4; ++i) words[i] = load_16_bits(base + rows[i], offsets);
  __m128i low = _mm_min_epu8(_mm_min_epu8(words[0], words[1]), _mm_min_epu8(words[2], words[3]));
  __m128i high = _mm_max_epu8(_mm_max_epu8(words[0], words[1]), _mm_max_epu8(words[2], words[3]));
  const auto swapped = [](__m128i word) { return _mm_or_si128(_mm_srli_epi16(word, 8), _mm_slli_epi16(word, 8)); };
  low = _mm_min_epu8(low, swapped(low));  // in both halves
  high = _mm_max_epu8(high, swapped(high));
  LabelTaps seen;
  __m128i two_labels = _mm_set1_epi8(-1);
  for (int i = 0; i < 4; ++i) {
    const __m128i equal = _mm_cmpeq_epi8(words[i], high);
    two_labels = _mm_and_si128(two_labels, _mm_or_si128(equal, _mm_cmpeq_epi8(words[i], low)));
    const auto unit = [](__m128i mask) {
      return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cvtepi16_epi32(mask)), _mm256_set1_ps(1.0f));
    };
    seen.is_high[i] = {unit(_mm_srai_epi16(_mm_slli_epi16(equal, 8), 8)), unit(_mm_srai_epi16(equal, 8))};
  }
  const auto to_float = [](__m128i word) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_and_si128(word, _mm_set1_epi16(0xff))));
  };
  seen.low = to_float(low);
  seen.high = to_float(high);
  const __m128i both = _mm_cmpeq_epi16(two_labels, _mm_set1_epi16(-1));
  seen.two_labels = _mm_movemask_epi8(_mm_packs_epi16(both, both)) & 0xff;
  return seen;
}

// The label of the largest weight. Where eight voxels see no more than two labels each, one weight decides; anything
// else is left to the definition.
template <class T>
__m256 label_lanes(const RowPlan<T>& plan, const __m256 (&at)[3]) {
  const Lanes lanes = lanes_of(plan, at);
  const int64_t dz = plan.source.stride[0], dy = plan.source.stride[1];
  const LabelTaps seen = label_taps(plan.source.data, {0, dy, dz, dz + dy}, lanes.offsets);
  __m256 row[4];
  for (int i = 0; i < 4; ++i) row[i] = mix_lanes<false>(seen.is_high[i].low, seen.is_high[i].high, lanes.fraction[2]);
  const __m256 near = mix_lanes<false>(row[0], row[1], lanes.fraction[1]);
  const __m256 far = mix_lanes<false>(row[2], row[3], lanes.fraction[1]);
  const __m256 weight = mix_lanes<false>(near, far, lanes.fraction[0]);
  const __m256 chosen = _mm256_blendv_ps(seen.low, seen.high, _mm256_cmp_ps(weight, _mm256_set1_ps(0.5f), _CMP_GT_OQ));
  const int known = plan.source.scaled ? 0 : seen.two_labels;  // labels that are scaled are no labels
  return known == 0xff ? chosen : labels_by_definition(plan, at, chosen, known);
}

// By the plan's interpolation; all taps lie in memory.
template <class T, class Positions>
void fill_lanes_of(float* row, int64_t begin, int64_t end, const RowPlan<T>& plan, const Positions& positions) {
  const auto fill = [&](const auto& compute) {
    __m256 at[3];
    const auto group = [&](int64_t x) {
      positions(x, at);
      _mm256_storeu_ps(row + x, compute(plan, at));
    };
    for (int64_t x = begin; x + 8 <= end; x += 8) group(x);
    // The last group is moved back over voxels already done: the same voxels give the same bits.
    if ((end - begin) % 8 != 0) group(end - 8);
  };
  // Lambdas, not function names: the compiler puts them into the loop.
  using At = const __m256(&)[3];
  const bool linear = plan.interpolation == Interpolation::kLinear;
  if (plan.interpolation == Interpolation::kLabel)
    fill([](const RowPlan<T>& p, At at) { return label_lanes<T>(p, at); });
  else if (linear && plan.source.scaled)
    fill([](const RowPlan<T>& p, At at) { return linear_lanes<T, true>(p, at); });
  else if (linear)
    fill([](const RowPlan<T>& p, At at) { return linear_lanes<T, false>(p, at); });
  else if (plan.source.scaled)
    fill([](const RowPlan<T>& p, At at) { return nearest_lanes<T, true>(p, at); });
  else
    fill([](const RowPlan<T>& p, At at) { return nearest_lanes<T, false>(p, at); });
}

template <class T>
float value_by_definition(const RowPlan<T>& plan, float z, float y, float x) {
  if (plan.interpolation == Interpolation::kLinear) return gather_linear(plan.source, z, y, x);
  if (plan.interpolation == Interpolation::kLabel) return gather_label(plan.source, z, y, x);
  return gather_nearest(plan.source, z, y, x);
}

}  // namespace vox::gather
