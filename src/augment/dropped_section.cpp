// Sections that were lost and replaced from their neighbours. The label stays, as in the original: it tells what was
// there.
#include <algorithm>

#include "augment/intensity.h"

namespace vox {
namespace {

using Replaced = step::ReplacedSection;

void replace(const PatchView& patch, const std::vector<Replaced>& all) {
  const int64_t slice = patch.extent.y * patch.extent.x;
  for (const Replaced& one : all) {
    float* out = patch.data + one.section * slice;
    const float *a = patch.data + one.first * slice, *b = patch.data + one.second * slice;
    for (int64_t i = 0; i < slice; ++i) out[i] = 0.5f * (a[i] + b[i]);
  }
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const DroppedSectionOptions& dropped = options.dropped_section;
  const int64_t last = context.patch.z - 1;
  if (last < 1 || !random.chance(dropped.prob)) return;
  const auto sections = draw_sections(dropped.sections, context.patch.z, random);
  std::vector<Replaced> all;
  for (const int64_t section : sections) {
    const int64_t before = section > 0 ? section - 1 : 1, after = section < last ? section + 1 : last - 1;
    const bool from_before = random.chance(0.5);
    if (dropped.with == "mean")
      all.push_back({section, before, after});
    else
      all.push_back({section, from_before ? before : after, from_before ? before : after});
  }
  add_intensity(
      drawn, "dropped_section", [all](const PatchView& patch) { replace(patch, all); }, step::ReplaceSections{all});
  drawn.parameters.emplace_back("dropped_section", "sections " + listed(sections) + " by " + dropped.with);
}

}  // namespace

TransformEntry dropped_section_transform() {
  return {"dropped_section", "sections that were lost and replaced from their neighbours", draw,
          [](const AugmentationOptions& o) { return o.dropped_section.enabled; }};
}

}  // namespace vox
