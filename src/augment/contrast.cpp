// Spreads values about the channel's mean, or draws them together; on request none leaves the range that the patch had.
#include <algorithm>

#include "augment/intensity.h"
#include "kernels/moments.h"

namespace vox {
namespace {

void spread(const PatchView& patch, float factor, bool preserve_range) {
  const int64_t count = patch.extent.voxels();
  if (count == 0) return;
  const PatchMoments before = moments_cpu(patch.data, count);
  const float mean = static_cast<float>(before.mean);
  for (int64_t i = 0; i < count; ++i) patch.data[i] = mean + (patch.data[i] - mean) * factor;
  if (!preserve_range) return;
  for (int64_t i = 0; i < count; ++i) patch.data[i] = std::min(std::max(patch.data[i], before.low), before.high);
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const ContrastOptions& contrast = options.contrast;
  if (!random.chance(contrast.prob)) return;
  const auto factors = draw_channels(contrast, context.channels, random, [&] {
    return static_cast<float>(draw_about_one(contrast.factor, contrast.balanced, "contrast.factor", random));
  });
  const bool preserve_range = contrast.preserve_range;
  add_intensity(
      drawn, "contrast", factors,
      [preserve_range](const PatchView& patch, float factor) { spread(patch, factor, preserve_range); },
      [preserve_range](float factor, int64_t) { return step::Contrast{factor, preserve_range}; },
      [](float factor) { return "factor " + format_number(factor, 4); });
}

}  // namespace

TransformEntry contrast_transform() {
  return {"contrast", "spread values about their mean", draw,
          [](const AugmentationOptions& o) { return o.contrast.enabled; }};
}

}  // namespace vox
