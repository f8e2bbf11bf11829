// Mirrors the patch along each of the axes, each with the probability.
#include "augment/spatial.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const Extent3&, const Spacing3&, Random random, Drawn& drawn) {
  SpatialMap map;
  std::string flipped;
  for (const int64_t listed : options.flip.axes) {
    const int axis = checked_axis(listed, "flip.axes");
    if (!random.chance(options.flip.prob)) continue;
    map.linear[axis][axis] = -1;
    flipped += (flipped.empty() ? "" : ",") + std::to_string(axis);
  }
  if (flipped.empty()) return;
  add_map(drawn, map);
  drawn.parameters.emplace_back("flip", "axes " + flipped);
}

}  // namespace

TransformEntry flip_transform() {
  return {"flip", "mirror along axes", draw, [](const AugmentationOptions& o) { return o.flip.enabled; }};
}

}  // namespace vox
