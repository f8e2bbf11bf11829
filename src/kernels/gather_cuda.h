// The gather on the GPU: the definition of gather_point.h and deformation_point.h, a thread a voxel. Its results are
// those of gather_cpu to the bit.
#pragma once

#include <span>

#include "kernels/cuda.h"
#include "kernels/gather.h"
#include "kernels/gather_point.h"

namespace vox::cuda {

// One gather, plain: it travels with the launch. Pointers are the device's.
struct GatherTask {
  GatherSource<void> source;
  DType stored = DType::kUInt8;
  GatherAxis axis[3];
  Interpolation interpolation = Interpolation::kLinear;
  const float* grid = nullptr;  // [3][z][y][x] shifts of control points; null: none
  int64_t points[3] = {0, 0, 0};
  float spacing[3] = {1, 1, 1};
  const float* sections = nullptr;  // [2][z], along y, then x; null: none
  GatherOutput output;
};

// What a deformation needs on the device, in float32 values, and those values.
int64_t deformation_values(const Deformation& deformation);
void write_deformation(const Deformation& deformation, float* out);

// `output` and `source` name device memory, `deformation` what write_deformation wrote (null where the map has none).
GatherTask gather_task(const GatherOutput& output, const VolumeView& source, const GatherMap& map,
                       const GatherOptions& options, const float* deformation);
void gather(const GatherTask& task, Stream stream);
// As one after the other. Neighbours of one map that write neighbouring channels of the same voxels are one launch.
void gather(std::span<const GatherTask> tasks, Stream stream);

}  // namespace vox::cuda
