// Mirrors the patch along each of the axes, each with the probability. Where left becomes right, channels of paired
// organs (the left and the right parotid) change places.
#include <numeric>

#include "augment/spatial.h"
#include "base/error.h"

namespace vox {
namespace {

std::vector<int64_t> swapped(const std::vector<int64_t>& pairs, int64_t channels) {
  VOX_CHECK(pairs.size() % 2 == 0, "augmentation.flip.swap_channels has ", pairs.size(),
            " channels; name them in pairs, such as 3,4");
  std::vector<int64_t> source(static_cast<size_t>(channels));
  std::iota(source.begin(), source.end(), 0);
  for (size_t i = 0; i < pairs.size(); i += 2) {
    for (const size_t k : {i, i + 1})
      VOX_CHECK(pairs[k] >= 0 && pairs[k] < channels, "augmentation.flip.swap_channels names channel ", pairs[k],
                ", but the image has ", channels, " of them");
    std::swap(source[static_cast<size_t>(pairs[i])], source[static_cast<size_t>(pairs[i + 1])]);
  }
  return source;
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  SpatialMap map;
  std::string flipped;
  for (const int64_t listed : options.flip.axes) {
    const int axis = checked_axis(listed, "flip.axes");
    if (!random.chance(options.flip.prob)) continue;
    map.linear[axis][axis] = -1;
    if (axis == options.flip.swap_axis && !options.flip.swap_channels.empty())
      drawn.source_channel = swapped(options.flip.swap_channels, context.channels);
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
