// One resampling of a volume in its stored type: every output voxel looks up its place in the source through one
// coordinate map. Flips, rotations, scaling, shifts and shears are one affine map, and an elastic displacement or moved
// sections are added to its positions; nothing is resampled twice.
// What a voxel's value is, to the bit, stands in gather_point.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "base/volume.h"
#include "kernels/deformation.h"

namespace vox {

// Source position of output voxel o (z, y, x): origin + matrix * o + offset, and what `deformation` adds. The integer
// origin keeps float32 positions exact in large volumes.
struct GatherMap {
  Extent3 origin;
  float matrix[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  float offset[3] = {0, 0, 0};
  std::shared_ptr<const Deformation> deformation{};  // null: none
};

enum class Interpolation { kNearest, kLinear, kLabel };  // kLabel: the label of the largest linear weight
enum class Padding { kConstant, kEdge, kReflect };
Padding padding_of(const std::string& name);  // of data.padding: constant, edge, reflect, or none, which is constant

struct GatherOutput {
  void* data = nullptr;
  DType dtype = DType::kFloat32;  // float32, bfloat16 or uint8
  Extent3 extent;
  int64_t voxel_stride = 1;  // elements between neighbours along x: 1 for NCDHW, channels for NDHWC
};

struct GatherOptions {
  Interpolation interpolation = Interpolation::kLinear;
  Padding padding = Padding::kConstant;
  float pad_value = 0;  // of the value, after scale and offset; finite, but where nothing is interpolated
};

// The smallest box of source positions that gather looks at, before padding; it may reach beyond the volume. Of a
// deformed map the box that the control points of each part of the patch allow, which may be a little more.
Box3 source_box(const GatherMap& map, const Extent3& output, Interpolation interpolation);

// A box that holds every voxel gather reads from a volume of `volume`: source_box clipped axis by axis, and where kEdge
// or kReflect look up border voxels or mirror far ones, those too. Empty where every voxel is padding.
Box3 read_box(const GatherMap& map, const Extent3& output, const GatherOptions& options, const Extent3& volume);

// `source` covers read_box. Identity and axis-permuting maps (flips, quarter turns, whole shifts) copy voxels bit for
// bit. One thread; the result does not depend on what else of the volume `source` holds.
void gather_cpu(const GatherOutput& output, const VolumeView& source, const GatherMap& map,
                const GatherOptions& options);

}  // namespace vox
