// Moves the patch over the volume, by fractions of a voxel too.
#include <cmath>

#include "augment/spatial.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const DrawContext&, Random random, Drawn& drawn) {
  if (!random.chance(options.shift.prob)) return;
  SpatialMap map;
  for (double& voxels : map.shift) {
    voxels = draw_between(options.shift.voxels, "shift.voxels", random);
    if (options.shift.whole) voxels = std::round(voxels);
  }
  drawn.parameters.emplace_back("shift", triple(map.shift) + " voxels");
  add_map(drawn, map);
}

}  // namespace

TransformEntry shift_transform() {
  return {"shift", "move by fractions of a voxel", draw, [](const AugmentationOptions& o) { return o.shift.enabled; }};
}

}  // namespace vox
