// Inside the gather: what its paths share.
#pragma once

#include "base/volume.h"
#include "kernels/gather_point.h"

namespace vox::gather {

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

// Converts one gathered row to the output's type and layout. `row` holds output.extent.x values of row (z, y).
void store_row(const GatherOutput& output, int64_t z, int64_t y, const float* row);

// Where output voxels can be written as they come, the row itself; else null.
float* row_in_place(const GatherOutput& output, int64_t z, int64_t y);

// Signed permutations with whole offsets move voxels, they compute nothing.
bool is_copy(const GatherMap& map);

template <class T>
void copy_rows(const GatherOutput& output, const GatherSource<T>& source, const GatherMap& map);

// The affine path, for all types that volumes are stored in.
template <class T>
void interpolate_rows(const GatherOutput& output, const GatherSource<T>& source, const GatherMap& map,
                      Interpolation interpolation);

// Maps with a deformation: positions are not monotone along a row, so that each group of eight is checked.
template <class T>
void deform_rows(const GatherOutput& output, const GatherSource<T>& source, const GatherMap& map,
                 Interpolation interpolation);

}  // namespace vox::gather
