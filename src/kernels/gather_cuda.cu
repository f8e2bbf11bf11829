// A block takes some rows of the output: first the control points of each row collapse to its coefficients, in shared
// memory, then a thread takes a voxel at a time.
#include <algorithm>

#include "kernels/cuda_device.cuh"
#include "kernels/gather_device.cuh"
#include "kernels/gather_rows.h"

namespace vox::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kVoxelsPerBlock = 1024;

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
  extern __shared__ float coefficients[];
  __shared__ RowPlace places[kMaxGatherRows];
  const BlockRows rows = prepare_rows(task, rows_per_block, places, shared_coefficients ? coefficients : nullptr);
  __syncthreads();
  const int length = static_cast<int>(task.output.extent.x), per_row = 3 * static_cast<int>(task.points[2]);
  for (int i = threadIdx.x; i < rows.count * length; i += kThreads) {
    const int row = i / length, x = i % length;
    float position[3];
    affine_position(task, places[row], x, position);
    if (task.grid)
      displace(task, rows.first + row, shared_coefficients ? coefficients + row * per_row : nullptr, x, position);
    store(task.output, rows.first * length + i, value_at<T>(task, position));
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
  int64_t rows = std::clamp<int64_t>(kVoxelsPerBlock / extent.x, 1, kMaxGatherRows);
  const int64_t bytes_per_row = task.grid ? 3 * task.points[2] * static_cast<int64_t>(sizeof(float)) : 0;
  const bool shared = task.grid && bytes_per_row <= kSharedBytes;
  if (shared) rows = std::min(rows, kSharedBytes / bytes_per_row);
  const int64_t blocks = (extent.z * extent.y + rows - 1) / rows;
  const size_t bytes = shared ? static_cast<size_t>(rows * bytes_per_row) : 0;
  with_type(task.stored, [&](auto typed) {
    gather_kernel<decltype(typed)>
        <<<static_cast<unsigned>(blocks), kThreads, bytes, stream>>>(task, static_cast<int>(rows), shared);
  });
  check_launch("gather");
}

}  // namespace vox::cuda
