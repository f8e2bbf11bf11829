// Sections out of focus: a Gaussian in their plane.
#include "augment/intensity.h"
#include "kernels/blur.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  if (!random.chance(options.blurred_section.prob)) return;
  const auto sections = draw_sections(options.blurred_section.sections, context.patch.z, random);
  const double sigma = draw_between(options.blurred_section.sigma, "blurred_section.sigma", random);
  const auto apply = [sections, sigma](const PatchView& patch) {
    const Extent3 one{1, patch.extent.y, patch.extent.x};
    for (const int64_t section : sections)
      gaussian_blur_cpu(patch.data + section * one.voxels(), one, {0, sigma, sigma});
  };
  add_intensity(drawn, "blurred_section", apply, step::BlurSections{sections, sigma});
  drawn.parameters.emplace_back("blurred_section",
                                concat("sections ", listed(sections), ", sigma ", format_number(sigma, 4)));
}

}  // namespace

TransformEntry blurred_section_transform() {
  return {"blurred_section", "sections out of focus", draw,
          [](const AugmentationOptions& o) { return o.blurred_section.enabled; }};
}

}  // namespace vox
