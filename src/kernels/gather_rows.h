// Inside the gather: what its two CPU paths share.
#pragma once

#include "kernels/gather_point.h"

namespace vox::gather {

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
