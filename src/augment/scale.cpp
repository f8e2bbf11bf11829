// Enlarges (factor above 1) or shrinks what the patch shows.
#include "augment/spatial.h"
#include "base/error.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const Extent3&, const Spacing3&, Random random, Drawn& drawn) {
  if (!random.chance(options.scale.prob)) return;
  SpatialMap map;
  double factor[3];
  for (int axis = 0; axis < 3; ++axis) {
    const bool fresh = axis == 0 || options.scale.per_axis;
    factor[axis] = fresh ? draw_between(options.scale.range, "scale.range", random) : factor[0];
    VOX_CHECK(factor[axis] > 0, "augmentation.scale.range must lie above 0, and the factor ", factor[axis],
              " was drawn from it");
    map.linear[axis][axis] = 1 / factor[axis];
  }
  add_map(drawn, map);
  drawn.parameters.emplace_back("scale", triple(factor));
}

}  // namespace

TransformEntry scale_transform() {
  return {"scale", "enlarge or shrink", draw, [](const AugmentationOptions& o) { return o.scale.enabled; }};
}

}  // namespace vox
