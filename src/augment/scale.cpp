// Enlarges (factor above 1) or shrinks what the patch shows; or, `of_region`, the region that it shows.
#include "augment/spatial.h"
#include "base/error.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const DrawContext&, Random random, Drawn& drawn) {
  const bool chosen = random.chance(options.scale.prob);
  if (!(options.scale.with_rotate ? drawn.rotates : chosen)) return;
  SpatialMap map;
  double factor[3] = {1, 1, 1}, shared = 0;
  for (const int64_t listed : options.scale.axes) {
    const int axis = checked_axis(listed, "scale.axes");
    const bool fresh = shared == 0 || options.scale.per_axis;
    factor[axis] = shared = fresh ? draw_between(options.scale.range, "scale.range", random) : shared;
    VOX_CHECK(shared > 0, "augmentation.scale.range must lie above 0, and the factor ", shared, " was drawn from it");
    map.linear[axis][axis] = options.scale.of_region ? shared : 1 / shared;
  }
  add_map(drawn, map);
  drawn.parameters.emplace_back("scale", triple(factor) + (options.scale.of_region ? " of the region" : ""));
}

}  // namespace

TransformEntry scale_transform() {
  return {"scale", "enlarge or shrink", draw, [](const AugmentationOptions& o) { return o.scale.enabled; }};
}

}  // namespace vox
