// Smooths by a Gaussian.
#include <array>

#include "augment/intensity.h"
#include "kernels/blur.h"

namespace vox {
namespace {

struct Widths {
  double of[3];
};

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const BlurOptions& blur = options.blur;
  if (!random.chance(blur.prob)) return;
  const auto widths = draw_channels(blur, context.channels, random, [&] {
    Widths drawn_widths;
    for (int axis = 0; axis < 3; ++axis)
      drawn_widths.of[axis] =
          axis == 0 || blur.per_axis ? draw_between(blur.sigma, "blur.sigma", random) : drawn_widths.of[0];
    return drawn_widths;
  });
  add_intensity(
      drawn, "blur", widths,
      [](const PatchView& patch, const Widths& sigma) { gaussian_blur_cpu(patch.data, patch.extent, sigma.of); },
      [](const Widths& sigma, int64_t) { return step::Blur{{sigma.of[0], sigma.of[1], sigma.of[2]}}; },
      [](const Widths& sigma) { return "sigma " + triple(sigma.of); });
}

}  // namespace

TransformEntry blur_transform() {
  return {"blur", "smooth by a Gaussian", draw, [](const AugmentationOptions& o) { return o.blur.enabled; }};
}

}  // namespace vox
