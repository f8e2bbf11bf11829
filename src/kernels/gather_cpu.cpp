#include <algorithm>
#include <cmath>

#include "kernels/gather_rows.h"

namespace vox {
namespace {

// Beyond this float32 positions are coarser than 1/2 voxel of the next integer; no patch reaches it.
constexpr float kFarthest = 4194304.0f;

struct Reach {  // of positions along one axis, relative to the origin
  float low, high;
};

Reach reach_of(const GatherMap& map, int axis, const Extent3& output) {
  const float* m = map.matrix[axis];
  const GatherAxis row{m[0], m[1], m[2], map.offset[axis]};
  Reach reach{INFINITY, -INFINITY};
  for (int corner = 0; corner < 8; ++corner) {
    const float z = corner & 4 ? static_cast<float>(output.z - 1) : 0.0f;
    const float y = corner & 2 ? static_cast<float>(output.y - 1) : 0.0f;
    const float x = corner & 1 ? static_cast<float>(output.x - 1) : 0.0f;
    const float position = position_at(row, row_start(row, z, y), x);
    reach.low = std::min(reach.low, position);
    reach.high = std::max(reach.high, position);
  }
  VOX_ASSERT(reach.low > -kFarthest && reach.high < kFarthest);
  return reach;
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

template <class T>
GatherSource<T> source_of(const VolumeView& view, const GatherMap& map, const GatherOptions& options) {
  GatherSource<T> source{};
  source.data = reinterpret_cast<const T*>(view.data);
  for (int axis = 0; axis < 3; ++axis) {
    source.origin[axis] = map.origin[axis];
    source.size[axis] = view.extent[axis];
    source.begin[axis] = view.box.begin[axis];
    source.end[axis] = view.box.end[axis];
  }
  source.stride[0] = view.stride_z;
  source.stride[1] = view.stride_y;
  source.stride[2] = 1;
  source.scale = static_cast<float>(view.scale);
  source.offset = static_cast<float>(view.offset) + 0.0f;  // -0 would make zeros differ in sign
  source.scaled = view.scale != 1 || view.offset != 0;
  source.padding = options.padding;
  source.pad_value = options.pad_value;
  return source;
}

}  // namespace

Box3 source_box(const GatherMap& map, const Extent3& output, Interpolation interpolation) {
  if (output.voxels() == 0) return {map.origin, map.origin};
  Box3 box;
  for (int axis = 0; axis < 3; ++axis) {
    const Reach reach = reach_of(map, axis, output);
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
  VOX_ASSERT(std::isfinite(options.pad_value));
  with_type(source.dtype, [&](auto typed) {
    using T = decltype(typed);
    const GatherSource<T> typed_source = source_of<T>(source, map, options);
    if (gather::is_copy(map))
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

void store_row(const GatherOutput& output, int64_t z, int64_t y, const float* row) {
  const int64_t count = output.extent.x, stride = output.voxel_stride;
  const int64_t first = (z * output.extent.y + y) * count * stride;
  if (output.dtype == DType::kFloat32) {
    float* out = static_cast<float*>(output.data) + first;
    for (int64_t x = 0; x < count; ++x) out[x * stride] = row[x];
  } else if (output.dtype == DType::kBFloat16) {
    BFloat16* out = static_cast<BFloat16*>(output.data) + first;
    for (int64_t x = 0; x < count; ++x) out[x * stride].bits = to_bfloat16_bits(row[x]);
  } else {
    VOX_ASSERT(output.dtype == DType::kUInt8);
    uint8_t* out = static_cast<uint8_t*>(output.data) + first;
    for (int64_t x = 0; x < count; ++x) out[x * stride] = to_label(row[x]);
  }
}

}  // namespace gather
}  // namespace vox
