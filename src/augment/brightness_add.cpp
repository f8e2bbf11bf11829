// Adds one number to all values.
#include "augment/intensity.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  if (!random.chance(options.brightness_add.prob)) return;
  const auto shifts = draw_channels(options.brightness_add, context.channels, random, [&] {
    return static_cast<float>(draw_between(options.brightness_add.shift, "brightness_add.shift", random));
  });
  add_intensity(
      drawn, "brightness_add", shifts,
      [](const PatchView& patch, float shift) {
        const int64_t count = patch.extent.voxels();
        for (int64_t i = 0; i < count; ++i) patch.data[i] += shift;
      },
      [](float shift, int64_t) { return step::Add{shift}; },
      [](float shift) { return "shift " + format_number(shift, 4); });
}

}  // namespace

TransformEntry brightness_add_transform() {
  return {"brightness_add", "add a number to values", draw,
          [](const AugmentationOptions& o) { return o.brightness_add.enabled; }};
}

}  // namespace vox
