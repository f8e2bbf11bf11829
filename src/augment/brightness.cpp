// Multiplies all values by one factor.
#include "augment/intensity.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const BrightnessOptions& brightness = options.brightness;
  if (!random.chance(brightness.prob)) return;
  const auto factors = draw_channels(brightness, context.channels, random, [&] {
    return static_cast<float>(draw_about_one(brightness.factor, brightness.balanced, "brightness.factor", random));
  });
  add_intensity(
      drawn, "brightness", factors,
      [](const PatchView& patch, float factor) {
        const int64_t count = patch.extent.voxels();
        for (int64_t i = 0; i < count; ++i) patch.data[i] *= factor;
      },
      [](float factor, int64_t) { return step::Multiply{factor}; },
      [](float factor) { return "factor " + format_number(factor, 4); });
}

}  // namespace

TransformEntry brightness_transform() {
  return {"brightness", "multiply values by a factor", draw,
          [](const AugmentationOptions& o) { return o.brightness.enabled; }};
}

}  // namespace vox
