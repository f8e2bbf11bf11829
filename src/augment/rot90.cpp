// Turns by 90, 180 or 270 degrees about one of the axes, in voxels: an exact copy. The patch keeps its shape, so that
// on a patch that is not a cube the source region turns instead.
#include "augment/spatial.h"
#include "base/error.h"

namespace vox {
namespace {

SpatialMap quarter_turns(int axis, int64_t turns) {
  const int u = (axis + 1) % 3, v = (axis + 2) % 3;
  SpatialMap turn, map;
  turn.linear[u][u] = turn.linear[v][v] = 0;
  turn.linear[u][v] = -1;
  turn.linear[v][u] = 1;
  for (int64_t i = 0; i < turns; ++i) map = compose(map, turn);
  return map;
}

void draw(const AugmentationOptions& options, const DrawContext&, Random random, Drawn& drawn) {
  const std::vector<int64_t>& axes = options.rot90.axes;
  VOX_CHECK(!axes.empty(), "augmentation.rot90.axes is empty; name at least one of 0, 1, 2");
  if (!random.chance(options.rot90.prob)) return;
  const size_t pick = static_cast<size_t>(random.below(static_cast<int64_t>(axes.size())));
  const int axis = checked_axis(axes[pick], "rot90.axes");
  const int64_t turns = 1 + random.below(3);
  add_map(drawn, quarter_turns(axis, turns));
  drawn.parameters.emplace_back("rot90", std::to_string(90 * turns) + " degrees about axis " + std::to_string(axis));
}

}  // namespace

TransformEntry rot90_transform() {
  return {"rot90", "turn by 90, 180 or 270 degrees about an axis", draw,
          [](const AugmentationOptions& o) { return o.rot90.enabled; }};
}

}  // namespace vox
