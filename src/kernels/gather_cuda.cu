// A block takes some rows of the output: first the control points of each row collapse to its coefficients, in shared
// memory, then a thread takes a voxel at a time.
#include <algorithm>

#include "kernels/cuda_device.cuh"
#include "kernels/deformation_point.h"
#include "kernels/gather_cuda.h"
#include "kernels/gather_rows.h"

namespace vox::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kVoxelsPerBlock = 1024;
constexpr int64_t kSharedFloats = 11776;  // with the rows' places less than the 48 KiB that any block may have
constexpr int kMaxRows = 64;

struct RowPlace {
  float start[3];  // of the affine position
  float section_x;
};

__device__ RowPlace place_of(const GatherTask& task, int64_t row) {
  const int64_t z = row / task.output.extent.y, y = row % task.output.extent.y;
  const float section_y = task.sections ? task.sections[z] : 0.0f;
  RowPlace place;
  place.section_x = task.sections ? task.sections[task.output.extent.z + z] : 0.0f;
  for (int axis = 0; axis < 3; ++axis)
    place.start[axis] = row_start(task.axis[axis], static_cast<float>(z), static_cast<float>(y) + section_y);
  return place;
}

__device__ float coefficient(const GatherTask& task, int64_t row, int axis, int64_t k) {
  const int64_t z = row / task.output.extent.y, y = row % task.output.extent.y;
  const SplineWeights at_z = spline_weights(static_cast<float>(z), task.spacing[0], task.points[0]);
  const SplineWeights at_y = spline_weights(static_cast<float>(y), task.spacing[1], task.points[1]);
  const int64_t width = task.points[2], slice = task.points[1] * width;
  return row_coefficient(task.grid + axis * task.points[0] * slice, slice, width, at_z, at_y, k);
}

// `coefficients` of the row, [3][width]; null: they are computed here.
__device__ void displace(const GatherTask& task, int64_t row, const float* coefficients, int64_t x,
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

// gather_linear where all eight taps are voxels in memory, as nearly everywhere: false elsewhere. A tap of weight zero
// is read here and has no effect (mix).
template <class T>
__device__ bool linear_inside(const GatherSource<T>& source, const float (&position)[3], float& value) {
  int64_t first = 0;
  float fraction[3];
  bool inside = true;
  for (int axis = 0; axis < 3; ++axis) {
    const float base = floorf(position[axis]);
    fraction[axis] = position[axis] - base;
    const int64_t at = source.origin[axis] + static_cast<int64_t>(base) - source.begin[axis];
    inside = inside && at >= 0 && at + 1 < source.end[axis] - source.begin[axis];
    first += at * source.stride[axis];
  }
  if (!inside) return false;
  const T* voxels = source.data + first;
  float corner[8];
  for (int i = 0; i < 8; ++i) {
    const float stored =
        static_cast<float>(voxels[(i & 4 ? source.stride[0] : 0) + (i & 2 ? source.stride[1] : 0) + (i & 1)]);
    corner[i] = source.scaled ? fmaf(source.scale, stored, source.offset) : stored;
  }
  value = mix_corners(corner, fraction);
  return true;
}

template <class T>
__device__ float value_at(const GatherTask& task, const float (&position)[3]) {
  GatherSource<T> source;
  static_assert(sizeof source == sizeof task.source);
  memcpy(&source, &task.source, sizeof source);
  if (task.interpolation == Interpolation::kLinear) {
    float value;
    if (linear_inside(source, position, value)) return value;
    return gather_linear(source, position[0], position[1], position[2]);
  }
  if (task.interpolation == Interpolation::kLabel) return gather_label(source, position[0], position[1], position[2]);
  return gather_nearest(source, position[0], position[1], position[2]);
}

__device__ void store(const GatherOutput& output, int64_t voxel, float value) {
  const int64_t at = voxel * output.voxel_stride;
  if (output.dtype == DType::kFloat32)
    static_cast<float*>(output.data)[at] = value;
  else if (output.dtype == DType::kBFloat16)
    static_cast<uint16_t*>(output.data)[at] = to_bfloat16_bits(value);
  else
    static_cast<uint8_t*>(output.data)[at] = to_label(value);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ GatherTask task, int rows_per_block, bool shared_coefficients) {
  extern __shared__ float coefficients[];  // [rows][3][width]
  __shared__ RowPlace places[kMaxRows];
  const int64_t all_rows = task.output.extent.z * task.output.extent.y;
  const int64_t first = int64_t{blockIdx.x} * rows_per_block;
  const int count = all_rows - first < rows_per_block ? static_cast<int>(all_rows - first) : rows_per_block;
  const int width = static_cast<int>(task.points[2]), length = static_cast<int>(task.output.extent.x);
  for (int i = threadIdx.x; i < count; i += kThreads) places[i] = place_of(task, first + i);
  if (shared_coefficients)
    for (int i = threadIdx.x; i < count * 3 * width; i += kThreads)
      coefficients[i] = coefficient(task, first + i / (3 * width), i / width % 3, i % width);
  __syncthreads();
  for (int i = threadIdx.x; i < count * length; i += kThreads) {
    const int row = i / length, x = i % length;
    const RowPlace& place = places[row];
    float position[3];
    for (int axis = 0; axis < 3; ++axis)
      position[axis] = position_at(task.axis[axis], place.start[axis], static_cast<float>(x) + place.section_x);
    if (task.grid)
      displace(task, first + row, shared_coefficients ? coefficients + row * 3 * width : nullptr, x, position);
    store(task.output, first * length + i, value_at<T>(task, position));
  }
}

}  // namespace

int64_t deformation_values(const Deformation& deformation) {
  return 3 * deformation.grid.points.voxels() + static_cast<int64_t>(2 * deformation.section_y.size());
}

void write_deformation(const Deformation& deformation, float* out) {
  if (deformation.grid.points.voxels() > 0)
    for (const std::vector<float>& shift : deformation.grid.shift) out = std::copy(shift.begin(), shift.end(), out);
  out = std::copy(deformation.section_y.begin(), deformation.section_y.end(), out);
  std::copy(deformation.section_x.begin(), deformation.section_x.end(), out);
}

GatherTask gather_task(const GatherOutput& output, const VolumeView& source, const GatherMap& map,
                       const GatherOptions& options, const float* deformation) {
  GatherTask task;
  task.source = gather::source_of<void>(source, map, options);
  task.stored = source.dtype;
  // Where voxels only move, one tap of eight has all the weight.
  const bool moves = !map.deformation && gather::is_copy(map);
  task.interpolation = moves ? Interpolation::kNearest : options.interpolation;
  task.output = output;
  for (int axis = 0; axis < 3; ++axis) {
    const float* m = map.matrix[axis];
    task.axis[axis] = {m[0], m[1], m[2], map.offset[axis]};
  }
  if (!map.deformation) return task;
  const ControlGrid& grid = map.deformation->grid;
  VOX_ASSERT(deformation != nullptr);
  if (grid.points.voxels() > 0) {
    task.grid = deformation;
    for (int axis = 0; axis < 3; ++axis) {
      VOX_ASSERT(grid.points[axis] >= covering_points(output.extent[axis], grid.spacing[axis]));
      task.points[axis] = grid.points[axis];
      task.spacing[axis] = grid.spacing[axis];
    }
  }
  if (map.deformation->section_y.empty()) return task;
  VOX_ASSERT(static_cast<int64_t>(map.deformation->section_y.size()) == output.extent.z);
  task.sections = deformation + 3 * grid.points.voxels();
  return task;
}

void gather(const GatherTask& task, Stream stream) {
  const Extent3& extent = task.output.extent;
  if (extent.voxels() == 0) return;
  int64_t rows = std::clamp<int64_t>(kVoxelsPerBlock / extent.x, 1, kMaxRows);
  const int64_t floats_per_row = task.grid ? 3 * task.points[2] : 0;
  const bool shared = task.grid && floats_per_row <= kSharedFloats;
  if (shared) rows = std::min(rows, kSharedFloats / floats_per_row);
  const int64_t blocks = (extent.z * extent.y + rows - 1) / rows;
  const size_t bytes = shared ? static_cast<size_t>(rows * floats_per_row) * sizeof(float) : 0;
  with_type(task.stored, [&](auto typed) {
    gather_kernel<decltype(typed)>
        <<<static_cast<unsigned>(blocks), kThreads, bytes, stream>>>(task, static_cast<int>(rows), shared);
  });
  check_launch("gather");
}

}  // namespace vox::cuda
