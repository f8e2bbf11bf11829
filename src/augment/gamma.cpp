// Bends the curve of values by a power on the patch's own range; inverted, on the negative of the image.
#include "kernels/gamma.h"
#include "augment/intensity.h"

namespace vox {
namespace {

struct Request {
  const GammaOptions& options;
  const char *name, *range_name;
  bool inverted;
};

void draw_gamma(const Request& request, const DrawContext& context, Random& random, Drawn& drawn) {
  const GammaOptions& options = request.options;
  if (!random.chance(options.prob)) return;
  const auto curves = draw_channels(options, context.channels, random, [&] {
    const double exponent = draw_about_one(options.range, options.balanced, request.range_name, random);
    return GammaCurve{static_cast<float>(exponent), request.inverted, options.keep_statistics};
  });
  add_intensity(
      drawn, request.name, curves,
      [](const PatchView& patch, const GammaCurve& curve) { gamma_cpu(patch.data, patch.extent.voxels(), curve); },
      [](const GammaCurve& curve, int64_t) { return step::Gamma{curve}; },
      [](const GammaCurve& curve) { return "exponent " + format_number(curve.exponent, 4); });
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  draw_gamma({options.gamma, "gamma", "gamma.range", false}, context, random, drawn);
}

void draw_inverted(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  draw_gamma({options.gamma_inverted, "gamma_inverted", "gamma_inverted.range", true}, context, random, drawn);
}

}  // namespace

TransformEntry gamma_transform() {
  return {"gamma", "bend the curve of values by a power", draw,
          [](const AugmentationOptions& o) { return o.gamma.enabled; }};
}

TransformEntry gamma_inverted_transform() {
  return {"gamma_inverted", "the same on the negative of the image", draw_inverted,
          [](const AugmentationOptions& o) { return o.gamma_inverted.enabled; }};
}

}  // namespace vox
