#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "kernels/deformation_rows.h"
#include "kernels/gather_rows.h"

namespace vox {

Padding padding_of(const std::string& name) {
  if (name == "edge") return Padding::kEdge;
  return name == "reflect" ? Padding::kReflect : Padding::kConstant;
}

namespace {

// Beyond this float32 positions are coarser than 1/2 voxel of the next integer; no patch reaches it.
constexpr float kFarthest = 4194304.0f;

struct Reach {  // of positions along one axis, relative to the origin
  float low, high;
};

struct Reaches {
  Reach of[3];
};

GatherAxis axis_of(const GatherMap& map, int axis) {
  const float* m = map.matrix[axis];
  return {m[0], m[1], m[2], map.offset[axis]};
}

// Over the voxels first .. last (both included; y and x may lie between voxels).
Reach affine_reach(const GatherAxis& row, const float (&first)[3], const float (&last)[3]) {
  Reach reach{INFINITY, -INFINITY};
  for (int corner = 0; corner < 8; ++corner) {
    const float z = corner & 4 ? last[0] : first[0], y = corner & 2 ? last[1] : first[1],
                x = corner & 1 ? last[2] : first[2];
    const float position = position_at(row, row_start(row, z, y), x);
    reach.low = std::min(reach.low, position);
    reach.high = std::max(reach.high, position);
  }
  return reach;
}

Reaches affine_reaches(const GatherMap& map, const Extent3& output) {
  const float first[3] = {0, 0, 0};
  const float last[3] = {static_cast<float>(output.z - 1), static_cast<float>(output.y - 1),
                         static_cast<float>(output.x - 1)};
  Reaches reaches;
  for (int axis = 0; axis < 3; ++axis) reaches.of[axis] = affine_reach(axis_of(map, axis), first, last);
  return reaches;
}

// Section by section, the blocks of voxels that share control points: each moves as far as those allow.
Reaches deformed_reaches(const GatherMap& map, const Extent3& output) {
  const Deformation& deformation = *map.deformation;
  const bool sections = !deformation.section_y.empty();
  Reaches reaches{{{INFINITY, -INFINITY}, {INFINITY, -INFINITY}, {INFINITY, -INFINITY}}};
  const auto include = [&](const DisplacementBlock& block, int64_t z_first, int64_t z_last) {
    const size_t z = static_cast<size_t>(z_first);
    const float dy = sections ? deformation.section_y[z] : 0, dx = sections ? deformation.section_x[z] : 0;
    const Box3& box = block.output;
    const float first[3] = {static_cast<float>(z_first), static_cast<float>(box.begin.y) + dy,
                            static_cast<float>(box.begin.x) + dx};
    const float last[3] = {static_cast<float>(z_last), static_cast<float>(box.end.y - 1) + dy,
                           static_cast<float>(box.end.x - 1) + dx};
    for (int axis = 0; axis < 3; ++axis) {
      const Reach affine = affine_reach(axis_of(map, axis), first, last);
      reaches.of[axis].low = std::min(reaches.of[axis].low, affine.low + block.low[axis]);
      reaches.of[axis].high = std::max(reaches.of[axis].high, affine.high + block.high[axis]);
    }
  };
  for (const DisplacementBlock& block : displacement_blocks(deformation, output)) {
    if (!sections) include(block, block.output.begin.z, block.output.end.z - 1);
    for (int64_t z = block.output.begin.z; sections && z < block.output.end.z; ++z) include(block, z, z);
  }
  return reaches;
}

struct Range {
  int64_t begin, end;
};

// Voxels that the indices begin .. end-1 of an axis read.
Range padded_range(const Range& indices, int64_t size, Padding padding) {
  if (padding == Padding::kConstant) {
    const Range inside{std::max<int64_t>(indices.begin, 0), std::min(indices.end, size)};
    return inside.begin < inside.end ? inside : Range{0, 0};
  }
  if (padding == Padding::kReflect && indices.end - indices.begin >= 2 * size) return {0, size};
  Range read{size, 0};
  for (int64_t i = indices.begin; i < indices.end; ++i) {
    const int64_t voxel = padded_index(i, size, padding);
    read = {std::min(read.begin, voxel), std::max(read.end, voxel + 1)};
  }
  return read;
}

}  // namespace

Box3 source_box(const GatherMap& map, const Extent3& output, Interpolation interpolation) {
  if (output.voxels() == 0) return {map.origin, map.origin};
  const Reaches reaches = map.deformation ? deformed_reaches(map, output) : affine_reaches(map, output);
  Box3 box;
  for (int axis = 0; axis < 3; ++axis) {
    const Reach reach = reaches.of[axis];
    VOX_ASSERT(reach.low > -kFarthest && reach.high < kFarthest);
    const bool nearest = interpolation == Interpolation::kNearest;
    const float low = nearest ? std::floor(reach.low + 0.5f) : std::floor(reach.low);
    const float high = nearest ? std::floor(reach.high + 0.5f) : std::ceil(reach.high);
    box.begin[axis] = map.origin[axis] + static_cast<int64_t>(low);
    box.end[axis] = map.origin[axis] + static_cast<int64_t>(high) + 1;
  }
  return box;
}

Box3 read_box(const GatherMap& map, const Extent3& output, const GatherOptions& options, const Extent3& volume) {
  if (output.voxels() == 0 || volume.voxels() == 0) return {};
  const Box3 looked_at = source_box(map, output, options.interpolation);
  Box3 read;
  for (int axis = 0; axis < 3; ++axis) {
    const Range range = padded_range({looked_at.begin[axis], looked_at.end[axis]}, volume[axis], options.padding);
    read.begin[axis] = range.begin;
    read.end[axis] = range.end;
  }
  return read.empty() ? Box3{} : read;
}

void gather_cpu(const GatherOutput& output, const VolumeView& source, const GatherMap& map,
                const GatherOptions& options) {
  if (output.extent.voxels() == 0) return;
  const Box3 needed = read_box(map, output.extent, options, source.extent);
  VOX_ASSERT(needed.empty() || source.box.contains(needed));
  VOX_ASSERT(std::isfinite(options.pad_value) || options.interpolation == Interpolation::kNearest);
  with_type(source.dtype, [&](auto typed) {
    using T = decltype(typed);
    const GatherSource<T> typed_source = gather::source_of<T>(source, map, options);
    if (map.deformation)
      gather::deform_rows(output, typed_source, map, options.interpolation);
    else if (gather::is_copy(map))
      gather::copy_rows(output, typed_source, map);
    else
      gather::interpolate_rows(output, typed_source, map, options.interpolation);
  });
}

namespace gather {

float* row_in_place(const GatherOutput& output, int64_t z, int64_t y) {
  if (output.dtype != DType::kFloat32 || output.voxel_stride != 1) return nullptr;
  return static_cast<float*>(output.data) + (z * output.extent.y + y) * output.extent.x;
}

namespace {

// Eight values as to_label and to_bfloat16_bits convert them, to the bit.
void store_lanes(uint8_t* out, __m256 values) {
  const __m256 rounded = _mm256_floor_ps(_mm256_add_ps(values, _mm256_set1_ps(0.5f)));
  const __m256 kept = _mm256_min_ps(_mm256_max_ps(rounded, _mm256_setzero_ps()), _mm256_set1_ps(255.0f));
  const __m256i whole = _mm256_cvttps_epi32(kept);
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(words, words));
}
void store_lanes(BFloat16* out, __m256 values) {
  const __m256i bits = _mm256_castps_si256(values), upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounding = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, rounding), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  const __m256i chosen = _mm256_blendv_epi8(rounded, quiet, is_nan);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                   _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1)));
}
void store_lanes(float* out, __m256 values) {
  _mm256_storeu_ps(out, values);
}

void store_one(uint8_t* out, float value) {
  *out = to_label(value);
}
void store_one(BFloat16* out, float value) {
  out->bits = to_bfloat16_bits(value);
}
void store_one(float* out, float value) {
  *out = value;
}

template <class T>
void store_values(T* out, int64_t stride, const float* row, int64_t count) {
  int64_t x = 0;
  if (stride == 1)
    for (; x + 8 <= count; x += 8) store_lanes(out + x, _mm256_loadu_ps(row + x));
  for (; x < count; ++x) store_one(out + x * stride, row[x]);
}

}  // namespace

void store_row(const GatherOutput& output, int64_t z, int64_t y, const float* row) {
  const int64_t count = output.extent.x, stride = output.voxel_stride;
  const int64_t first = (z * output.extent.y + y) * count * stride;
  if (output.dtype == DType::kFloat32) {
    store_values(static_cast<float*>(output.data) + first, stride, row, count);
  } else if (output.dtype == DType::kBFloat16) {
    store_values(static_cast<BFloat16*>(output.data) + first, stride, row, count);
  } else {
    VOX_ASSERT(output.dtype == DType::kUInt8);
    store_values(static_cast<uint8_t*>(output.data) + first, stride, row, count);
  }
}

}  // namespace gather
}  // namespace vox
