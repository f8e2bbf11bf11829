// One resampling of a volume in its stored type: every output voxel looks up its place in the source through one
// coordinate map. Flips, rotations, scaling, shifts and shears are one affine map; nothing is resampled twice.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/volume.h"

namespace vox {

// Source position of output voxel o (z, y, x): origin + matrix * o + offset. The integer origin keeps float32
// positions exact in large volumes.
struct GatherMap {
  Extent3 origin;
  float matrix[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  float offset[3] = {0, 0, 0};
};

enum class Interpolation { kNearest, kLinear };
enum class Padding { kConstant, kEdge, kReflect };

struct GatherOutput {
  void* data = nullptr;
  DType dtype = DType::kFloat32;  // float32, bfloat16 or uint8
  Extent3 extent;
  int64_t voxel_stride = 1;  // elements between neighbours along x: 1 for NCDHW, channels for NDHWC
};

struct GatherOptions {
  Interpolation interpolation = Interpolation::kLinear;
  Padding padding = Padding::kConstant;
  float pad_value = 0;  // of the value, after scale and offset
};

// The smallest box of source voxels that gather needs, before clipping to the volume (padding kReflect and kEdge
// look inside the volume only).
Box3 source_box(const GatherMap& map, const Extent3& output, Interpolation interpolation);

// `source` covers source_box clipped to the volume. Identity and axis-permuting maps copy voxels bit for bit.
void gather_cpu(const GatherOutput& output, const VolumeView& source, const GatherMap& map,
                const GatherOptions& options);

}  // namespace vox
