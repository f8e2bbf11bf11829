// Adds what a Gaussian takes away (an unsharp mask).
#include "augment/intensity.h"
#include "kernels/blur.h"

namespace vox {
namespace {

struct Mask {
  double sigma;
  float strength;
};

void sharpen(const PatchView& patch, const Mask& mask) {
  const int64_t count = patch.extent.voxels();
  thread_local std::vector<float> smooth;
  smooth.assign(patch.data, patch.data + count);
  gaussian_blur_cpu(smooth.data(), patch.extent, {mask.sigma, mask.sigma, mask.sigma});
  const float* blurred = smooth.data();
  for (int64_t i = 0; i < count; ++i) patch.data[i] += mask.strength * (patch.data[i] - blurred[i]);
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  if (!random.chance(options.sharpen.prob)) return;
  const auto masks = draw_channels(options.sharpen, context.channels, random, [&] {
    const double sigma = draw_between(options.sharpen.sigma, "sharpen.sigma", random);
    return Mask{sigma, static_cast<float>(draw_between(options.sharpen.strength, "sharpen.strength", random))};
  });
  add_intensity(
      drawn, "sharpen", masks, sharpen,
      [](const Mask& mask, int64_t) { return step::Sharpen{mask.sigma, mask.strength}; },
      [](const Mask& mask) {
        return concat("strength ", format_number(mask.strength, 4), ", sigma ", format_number(mask.sigma, 4));
      });
}

}  // namespace

TransformEntry sharpen_transform() {
  return {"sharpen", "add what a Gaussian takes away", draw,
          [](const AugmentationOptions& o) { return o.sharpen.enabled; }};
}

}  // namespace vox
