// Sections that moved while they were taken: the mean along a line in their plane, the border voxel beyond the border.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "augment/intensity.h"

namespace vox {
namespace {

struct Movement {
  double y, x;  // unit direction
  double length;
};

// Linear interpolation in one section, at a place that is moved inside first.
float value_at(const float* section, const Extent3& extent, double y, double x) {
  y = std::clamp(y, 0.0, static_cast<double>(extent.y - 1));
  x = std::clamp(x, 0.0, static_cast<double>(extent.x - 1));
  const int64_t iy = std::min(static_cast<int64_t>(y), std::max<int64_t>(extent.y - 2, 0)),
                ix = std::min(static_cast<int64_t>(x), std::max<int64_t>(extent.x - 2, 0));
  const float fy = static_cast<float>(y - static_cast<double>(iy)),
              fx = static_cast<float>(x - static_cast<double>(ix));
  const int64_t down = extent.y > 1 ? extent.x : 0, right = extent.x > 1 ? 1 : 0;
  const float* at = section + iy * extent.x + ix;
  const float upper = at[0] + fx * (at[right] - at[0]), lower = at[down] + fx * (at[down + right] - at[down]);
  return upper + fy * (lower - upper);
}

void smear(float* section, const Extent3& extent, const Movement& movement) {
  const int64_t taps = std::max<int64_t>(2, static_cast<int64_t>(std::ceil(movement.length)) + 1);
  const std::vector<float> before(section, section + extent.y * extent.x);
  for (int64_t y = 0; y < extent.y; ++y)
    for (int64_t x = 0; x < extent.x; ++x) {
      float sum = 0;
      for (int64_t tap = 0; tap < taps; ++tap) {
        const double along = movement.length * (static_cast<double>(tap) / static_cast<double>(taps - 1) - 0.5);
        sum += value_at(before.data(), extent, static_cast<double>(y) + along * movement.y,
                        static_cast<double>(x) + along * movement.x);
      }
      section[y * extent.x + x] = sum / static_cast<float>(taps);
    }
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  if (!random.chance(options.motion_blur.prob)) return;
  const auto sections = draw_sections(options.motion_blur.sections, context.patch.z, random);
  const double angle = random.uniform(0, std::numbers::pi);
  const double length = draw_between(options.motion_blur.length, "motion_blur.length", random);
  const Movement movement{std::sin(angle), std::cos(angle), length};
  const auto apply = [sections, movement](const PatchView& patch) {
    const int64_t slice = patch.extent.y * patch.extent.x;
    for (const int64_t section : sections) smear(patch.data + section * slice, patch.extent, movement);
  };
  add_intensity(drawn, "motion_blur", apply, step::SmearSections{sections, movement.y, movement.x, movement.length});
  drawn.parameters.emplace_back("motion_blur", concat("sections ", listed(sections), ", length ",
                                                      format_number(length, 4), ", angle ", format_number(angle, 4)));
}

}  // namespace

TransformEntry motion_blur_transform() {
  return {"motion_blur", "sections that moved while they were taken", draw,
          [](const AugmentationOptions& o) { return o.motion_blur.enabled; }};
}

}  // namespace vox
