// Adds a ramp in a random direction: + strength at one end of the patch, - strength at the other, nothing at its
// centre.
#include <cmath>

#include "augment/intensity.h"

namespace vox {
namespace {

struct Ramp {
  double direction[3];  // unit length, in patches
  double strength;
};

// The ramp is 1 where the patch's box, scaled to -1 .. 1, is met by its plane: no voxel gets more than the strength.
step::Ramp ramp_over(const Extent3& extent, const Ramp& ramp) {
  const double reach = std::abs(ramp.direction[0]) + std::abs(ramp.direction[1]) + std::abs(ramp.direction[2]);
  step::Ramp over{};
  for (int axis = 0; axis < 3; ++axis) {
    const double half = static_cast<double>(extent[axis] - 1) / 2;
    over.along[axis] = half > 0 ? ramp.strength * ramp.direction[axis] / reach / half : 0;
    over.start -= over.along[axis] * half;
  }
  return over;
}

void add_ramp(const PatchView& patch, const Ramp& ramp) {
  const auto [start, step] = ramp_over(patch.extent, ramp);
  const float slope = static_cast<float>(step[2]);
  for (int64_t z = 0; z < patch.extent.z; ++z)
    for (int64_t y = 0; y < patch.extent.y; ++y) {
      const float first =
          static_cast<float>(start + step[0] * static_cast<double>(z) + step[1] * static_cast<double>(y));
      float* row = patch.data + (z * patch.extent.y + y) * patch.extent.x;
      for (int64_t x = 0; x < patch.extent.x; ++x) row[x] += first + slope * static_cast<float>(x);
    }
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const BrightnessGradientOptions& gradient = options.brightness_gradient;
  if (!random.chance(gradient.prob)) return;
  const auto ramps = draw_channels(gradient, context.channels, random, [&] {
    Ramp ramp;
    double length = 0;
    for (double& part : ramp.direction) part = random.normal();
    for (const double part : ramp.direction) length += part * part;
    for (double& part : ramp.direction) part /= std::sqrt(length);
    ramp.strength = draw_between(gradient.strength, "brightness_gradient.strength", random);
    return ramp;
  });
  add_intensity(
      drawn, "brightness_gradient", ramps, add_ramp,
      [patch = context.patch](const Ramp& ramp, int64_t) { return ramp_over(patch, ramp); },
      [](const Ramp& ramp) {
        return concat("strength ", format_number(ramp.strength, 4), " along ", triple(ramp.direction));
      });
}

}  // namespace

TransformEntry brightness_gradient_transform() {
  return {"brightness_gradient", "add a ramp in a random direction", draw,
          [](const AugmentationOptions& o) { return o.brightness_gradient.enabled; }};
}

}  // namespace vox
