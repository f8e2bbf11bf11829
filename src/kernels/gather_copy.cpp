// Maps that move voxels without computing: identity, flips, quarter turns and shifts by whole voxels. Each source axis
// follows one output axis, so three tables of offsets say where every voxel comes from.
#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels/gather_rows.h"

namespace vox::gather {
namespace {

constexpr int64_t kPadding = -1;

struct CopyTables {
  std::vector<int64_t> offset[3];  // by output axis: elements from source.data, or kPadding
  int x_step = 0;  // 1, -1: neighbours along output x are neighbours in memory, in this order, and none is padding
};

// The output axis that source axis `axis` follows.
int followed_axis(const GatherMap& map, int axis) {
  for (int out = 0; out < 3; ++out)
    if (map.matrix[axis][out] != 0) return out;
  return -1;
}

bool runs_by(int step, const std::vector<int64_t>& offsets) {
  for (size_t i = 0; i < offsets.size(); ++i)
    if (offsets[i] == kPadding || offsets[i] != offsets[0] + step * static_cast<int64_t>(i)) return false;
  return true;
}

template <class T>
CopyTables make_tables(const Extent3& output, const GatherSource<T>& source, const GatherMap& map) {
  CopyTables tables;
  for (int axis = 0; axis < 3; ++axis) {
    const int out = followed_axis(map, axis);
    const int64_t step = map.matrix[axis][out] > 0 ? 1 : -1;
    const int64_t first = source.origin[axis] + static_cast<int64_t>(map.offset[axis]);
    for (int64_t i = 0; i < output[out]; ++i) {
      const int64_t voxel = padded_index(first + step * i, source.size[axis], source.padding);
      tables.offset[out].push_back(voxel < 0 ? kPadding : (voxel - source.begin[axis]) * source.stride[axis]);
    }
  }
  for (const int step : {1, -1})
    if (runs_by(step, tables.offset[2])) tables.x_step = step;
  return tables;
}

template <class T>
void copy_row(float* row, const GatherSource<T>& source, int64_t base, const CopyTables& tables) {
  const std::vector<int64_t>& along_x = tables.offset[2];
  const int64_t count = static_cast<int64_t>(along_x.size());
  if (tables.x_step != 0) {
    const T* from = source.data + base + along_x[0];
    if (tables.x_step > 0)
      for (int64_t x = 0; x < count; ++x) row[x] = static_cast<float>(from[x]);
    else
      for (int64_t x = 0; x < count; ++x) row[x] = static_cast<float>(from[-x]);
    if (source.scaled)
      for (int64_t x = 0; x < count; ++x) row[x] = std::fma(source.scale, row[x], source.offset);
    return;
  }
  for (int64_t x = 0; x < count; ++x) {
    const int64_t offset = along_x[static_cast<size_t>(x)];
    if (offset == kPadding) {
      row[x] = source.pad_value;
      continue;
    }
    const float stored = static_cast<float>(source.data[base + offset]);
    row[x] = source.scaled ? std::fma(source.scale, stored, source.offset) : stored;
  }
}

// Labels that stay labels need no detour through float.
template <class T>
bool copy_bytes(const GatherOutput& output, const GatherSource<T>& source, int64_t z, int64_t y, int64_t base,
                const CopyTables& tables) {
  if (!std::is_same_v<T, uint8_t> || output.dtype != DType::kUInt8 || output.voxel_stride != 1 || source.scaled ||
      tables.x_step == 0)
    return false;
  uint8_t* out = static_cast<uint8_t*>(output.data) + (z * output.extent.y + y) * output.extent.x;
  const T* from = source.data + base + tables.offset[2][0];
  if (tables.x_step > 0)
    std::memcpy(out, from, static_cast<size_t>(output.extent.x));
  else
    for (int64_t x = 0; x < output.extent.x; ++x) out[x] = static_cast<uint8_t>(from[-x]);
  return true;
}

}  // namespace

bool is_copy(const GatherMap& map) {
  bool taken[3] = {false, false, false};
  for (int axis = 0; axis < 3; ++axis) {
    if (map.offset[axis] != std::floor(map.offset[axis])) return false;
    for (int out = 0; out < 3; ++out) {
      const float m = map.matrix[axis][out];
      if (m == 0) continue;
      if (std::abs(m) != 1 || taken[out] || followed_axis(map, axis) != out) return false;
      taken[out] = true;
    }
  }
  return taken[0] && taken[1] && taken[2];
}

template <class T>
void copy_rows(const GatherOutput& output, const GatherSource<T>& source, const GatherMap& map) {
  const CopyTables tables = make_tables(output.extent, source, map);
  std::vector<float> scratch(static_cast<size_t>(output.extent.x));
  for (int64_t z = 0; z < output.extent.z; ++z) {
    for (int64_t y = 0; y < output.extent.y; ++y) {
      const int64_t from_z = tables.offset[0][static_cast<size_t>(z)],
                    from_y = tables.offset[1][static_cast<size_t>(y)];
      const bool padding = from_z == kPadding || from_y == kPadding;
      if (!padding && copy_bytes(output, source, z, y, from_z + from_y, tables)) continue;
      float* const in_place = row_in_place(output, z, y);
      float* const row = in_place ? in_place : scratch.data();
      if (padding)
        std::fill_n(row, output.extent.x, source.pad_value);
      else
        copy_row(row, source, from_z + from_y, tables);
      if (!in_place) store_row(output, z, y, row);
    }
  }
}

template void copy_rows(const GatherOutput&, const GatherSource<uint8_t>&, const GatherMap&);
template void copy_rows(const GatherOutput&, const GatherSource<int8_t>&, const GatherMap&);
template void copy_rows(const GatherOutput&, const GatherSource<uint16_t>&, const GatherMap&);
template void copy_rows(const GatherOutput&, const GatherSource<int16_t>&, const GatherMap&);
template void copy_rows(const GatherOutput&, const GatherSource<uint32_t>&, const GatherMap&);
template void copy_rows(const GatherOutput&, const GatherSource<int32_t>&, const GatherMap&);
template void copy_rows(const GatherOutput&, const GatherSource<float>&, const GatherMap&);
template void copy_rows(const GatherOutput&, const GatherSource<double>&, const GatherMap&);

}  // namespace vox::gather
