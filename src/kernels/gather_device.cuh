// Inside the GPU's gathers: the rows that a block takes, and the positions of their voxels.
#pragma once

#include "kernels/deformation_point.h"
#include "kernels/gather_cuda.h"

namespace vox::cuda {

constexpr int kMaxGatherRows = 64;       // of a block
constexpr int64_t kSharedBytes = 47104;  // with the rows' places less than the 48 KiB that any block may have

struct RowPlace {
  float start[3];  // of the affine position
  float section_x;
};

__device__ inline RowPlace place_of(const GatherTask& task, int64_t row) {
  const int64_t z = row / task.output.extent.y, y = row % task.output.extent.y;
  const float section_y = task.sections ? task.sections[z] : 0.0f;
  RowPlace place;
  place.section_x = task.sections ? task.sections[task.output.extent.z + z] : 0.0f;
  for (int axis = 0; axis < 3; ++axis)
    place.start[axis] = row_start(task.axis[axis], static_cast<float>(z), static_cast<float>(y) + section_y);
  return place;
}

__device__ inline float coefficient(const GatherTask& task, int64_t row, int axis, int64_t k) {
  const int64_t z = row / task.output.extent.y, y = row % task.output.extent.y;
  const SplineWeights at_z = spline_weights(static_cast<float>(z), task.spacing[0], task.points[0]);
  const SplineWeights at_y = spline_weights(static_cast<float>(y), task.spacing[1], task.points[1]);
  const int64_t width = task.points[2], slice = task.points[1] * width;
  return row_coefficient(task.grid + axis * task.points[0] * slice, slice, width, at_z, at_y, k);
}

// `coefficients` of the row, [3][width]; null: they are computed here.
__device__ inline void displace(const GatherTask& task, int64_t row, const float* coefficients, int64_t x,
                                float (&position)[3]) {
  const SplineWeights at_x = spline_weights(static_cast<float>(x), task.spacing[2], task.points[2]);
  for (int axis = 0; axis < 3; ++axis) {
    if (coefficients) {
      position[axis] = position[axis] + spline_value(at_x, coefficients + axis * task.points[2]);
      continue;
    }
    float own[4];
    for (int k = 0; k < 4; ++k) own[k] = coefficient(task, row, axis, at_x.cell + k);
    SplineWeights from_zero = at_x;
    from_zero.cell = 0;
    position[axis] = position[axis] + spline_value(from_zero, own);
  }
}

struct BlockRows {
  int64_t first;
  int count;
  const RowPlace* places;     // in shared memory
  const float* coefficients;  // there too, [rows][3][width]; null: each voxel computes its own
};

// A barrier must follow.
__device__ inline BlockRows prepare_rows(const GatherTask& task, int rows_per_block, RowPlace* places,
                                         float* coefficients) {
  const int64_t all_rows = task.output.extent.z * task.output.extent.y;
  const int64_t first = int64_t{blockIdx.x} * rows_per_block;
  const int count = all_rows - first < rows_per_block ? static_cast<int>(all_rows - first) : rows_per_block;
  const int width = static_cast<int>(task.points[2]), threads = static_cast<int>(blockDim.x);
  for (int i = threadIdx.x; i < count; i += threads) places[i] = place_of(task, first + i);
  if (coefficients)
    for (int i = threadIdx.x; i < count * 3 * width; i += threads)
      coefficients[i] = coefficient(task, first + i / (3 * width), i / width % 3, i % width);
  return {first, count, places, coefficients};
}

__device__ inline void affine_position(const GatherTask& task, const RowPlace& place, int x, float (&position)[3]) {
#pragma unroll
  for (int axis = 0; axis < 3; ++axis)
    position[axis] = position_at(task.axis[axis], place.start[axis], static_cast<float>(x) + place.section_x);
}

}  // namespace vox::cuda
