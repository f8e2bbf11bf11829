// Shows the patch as if it had been taken at a lower resolution: nearest voxels down, linear interpolation up.
#include <algorithm>
#include <cmath>

#include "augment/intensity.h"
#include "kernels/low_resolution.h"

namespace vox {
namespace {

struct Shares {
  double of[3] = {1, 1, 1};
};

Extent3 coarse_grid(const Extent3& fine, const Shares& shares) {
  Extent3 coarse;
  for (int axis = 0; axis < 3; ++axis) {
    const double voxels = shares.of[axis] * static_cast<double>(fine[axis]);
    coarse[axis] = std::clamp<int64_t>(static_cast<int64_t>(std::nearbyint(voxels)), 1, fine[axis]);
  }
  return coarse;
}

void lower(const PatchView& patch, const Shares& shares) {
  low_resolution_cpu(patch.data, patch.extent, coarse_grid(patch.extent, shares));
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const LowResolutionOptions& low = options.low_resolution;
  if (!random.chance(low.prob)) return;
  const auto shares = draw_channels(low, context.channels, random, [&] {
    Shares one;
    double shared = 0;
    for (const int64_t axis : low.axes) {
      if (shared == 0 || low.per_axis) shared = draw_between(low.scale, "low_resolution.scale", random);
      one.of[checked_axis(axis, "low_resolution.axes")] = shared;
    }
    return one;
  });
  add_intensity(
      drawn, "low_resolution", shares, lower,
      [patch = context.patch](const Shares& one, int64_t) { return step::LowResolution{coarse_grid(patch, one)}; },
      [](const Shares& one) { return "share " + triple(one.of); });
}

}  // namespace

TransformEntry low_resolution_transform() {
  return {"low_resolution", "take resolution away", draw,
          [](const AugmentationOptions& o) { return o.low_resolution.enabled; }};
}

}  // namespace vox
