// Multiplies all values by one factor.
#include "augment/spatial.h"
#include "base/text.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const Extent3&, const Spacing3&, Random random, Drawn& drawn) {
  if (!random.chance(options.brightness.prob)) return;
  const float factor = static_cast<float>(draw_between(options.brightness.factor, "brightness.factor", random));
  drawn.intensity.emplace_back("brightness", [factor](const PatchView& patch) {
    const int64_t count = patch.extent.voxels();
    for (int64_t i = 0; i < count; ++i) patch.data[i] *= factor;
  });
  drawn.parameters.emplace_back("brightness", "factor " + format_number(factor, 4));
}

}  // namespace

TransformEntry brightness_transform() {
  return {"brightness", "multiply values by a factor", draw,
          [](const AugmentationOptions& o) { return o.brightness.enabled; }};
}

}  // namespace vox
