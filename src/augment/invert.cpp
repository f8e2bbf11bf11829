// Mirrors values about their mean: what was bright is dark.
#include "augment/intensity.h"
#include "kernels/moments.h"

namespace vox {
namespace {

void invert(const PatchView& patch, bool) {
  const int64_t count = patch.extent.voxels();
  const float twice_mean = static_cast<float>(2 * moments_cpu(patch.data, count).mean);
  for (int64_t i = 0; i < count; ++i) patch.data[i] = twice_mean - patch.data[i];
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  if (!random.chance(options.invert.prob)) return;
  const auto channels = draw_channels(options.invert, context.channels, random, [] { return true; });
  add_intensity(
      drawn, "invert", channels, invert, [](bool, int64_t) { return step::Invert{}; },
      [](bool) { return std::string("about the mean"); });
}

}  // namespace

TransformEntry invert_transform() {
  return {"invert", "mirror values about their mean", draw,
          [](const AugmentationOptions& o) { return o.invert.enabled; }};
}

}  // namespace vox
