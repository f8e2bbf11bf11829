// Spreads values about the channel's mean, or draws them together; none leaves the range that the patch had.
#include <algorithm>

#include "augment/spatial.h"
#include "base/text.h"

namespace vox {
namespace {

struct Range {
  float mean, low, high;
};

Range range_of(const float* data, int64_t count) {
  double sum = 0;
  float low = data[0], high = data[0];
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(data[i]);
    low = std::min(low, data[i]);
    high = std::max(high, data[i]);
  }
  return {static_cast<float>(sum / static_cast<double>(count)), low, high};
}

void spread(const PatchView& patch, float factor) {
  const int64_t count = patch.extent.voxels();
  if (count == 0) return;
  const Range range = range_of(patch.data, count);
  for (int64_t i = 0; i < count; ++i) {
    const float value = range.mean + (patch.data[i] - range.mean) * factor;
    patch.data[i] = std::min(std::max(value, range.low), range.high);
  }
}

void draw(const AugmentationOptions& options, const Extent3&, const Spacing3&, Random random, Drawn& drawn) {
  if (!random.chance(options.contrast.prob)) return;
  const float factor = static_cast<float>(draw_between(options.contrast.factor, "contrast.factor", random));
  drawn.intensity.emplace_back("contrast", [factor](const PatchView& patch) { spread(patch, factor); });
  drawn.parameters.emplace_back("contrast", "factor " + format_number(factor, 4));
}

}  // namespace

TransformEntry contrast_transform() {
  return {"contrast", "spread values about their mean", draw,
          [](const AugmentationOptions& o) { return o.contrast.enabled; }};
}

}  // namespace vox
