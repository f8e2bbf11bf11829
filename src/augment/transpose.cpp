// Lets axes change places, in voxels: an exact copy. The patch keeps its shape, so that on a patch that is not a cube
// the source region is the permuted one.
#include <algorithm>

#include "augment/spatial.h"
#include "base/error.h"

namespace vox {
namespace {

// One of the orders of `axes` that are not the listed one, all with the same chance.
std::vector<int> drawn_order(const std::vector<int>& axes, Random& random) {
  std::vector<std::vector<int>> others;
  std::vector<int> order = axes;
  while (std::next_permutation(order.begin(), order.end())) others.push_back(order);
  return others[static_cast<size_t>(random.below(static_cast<int64_t>(others.size())))];
}

void draw(const AugmentationOptions& options, const DrawContext&, Random random, Drawn& drawn) {
  std::vector<int> axes;
  for (const int64_t listed : options.transpose.axes) axes.push_back(checked_axis(listed, "transpose.axes"));
  std::sort(axes.begin(), axes.end());
  VOX_CHECK(axes.size() >= 2 && std::adjacent_find(axes.begin(), axes.end()) == axes.end(),
            "augmentation.transpose.axes must be two or three different axes");
  if (!random.chance(options.transpose.prob)) return;
  const std::vector<int> order = drawn_order(axes, random);
  SpatialMap map;
  std::string text;
  for (size_t i = 0; i < axes.size(); ++i) {
    map.linear[axes[i]][axes[i]] = 0;
    text += (i == 0 ? "" : ",") + std::to_string(order[i]);
  }
  for (size_t i = 0; i < axes.size(); ++i) map.linear[axes[i]][order[i]] = 1;
  add_map(drawn, map);
  drawn.parameters.emplace_back("transpose", "axes " + text);
}

}  // namespace

TransformEntry transpose_transform() {
  return {"transpose", "let axes change places", draw,
          [](const AugmentationOptions& o) { return o.transpose.enabled; }};
}

}  // namespace vox
