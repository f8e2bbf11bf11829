// Sections that are not there, whole or in part: a constant stands in their place. The label stays, as in the original.
#include <algorithm>
#include <cmath>

#include "augment/intensity.h"

namespace vox {
namespace {

struct Missing {
  Box3 rows;
  float fill;
};

Missing draw_missing(const MissingSectionOptions& options, const Extent3& patch, int64_t section, Random& random) {
  Missing missing{{{section, 0, 0}, {section + 1, patch.y, patch.x}}, 0};
  if (!random.chance(options.full_prob)) {  // from one border up to a share of the rows
    const double rows = draw_between(options.part, "missing_section.part", random) * static_cast<double>(patch.y);
    const int64_t count = std::clamp<int64_t>(std::llround(rows), 1, patch.y);
    const bool from_start = random.chance(0.5);
    missing.rows.begin.y = from_start ? 0 : patch.y - count;
    missing.rows.end.y = missing.rows.begin.y + count;
  }
  missing.fill = static_cast<float>(draw_between(options.fill, "missing_section.fill", random));
  return missing;
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  if (!random.chance(options.missing_section.prob)) return;
  const auto sections = draw_sections(options.missing_section.sections, context.patch.z, random);
  std::vector<Missing> all;
  for (const int64_t section : sections)
    all.push_back(draw_missing(options.missing_section, context.patch, section, random));
  step::Fill as_data;
  for (const Missing& missing : all) {
    as_data.boxes.push_back(missing.rows);
    as_data.values.push_back(missing.fill);
  }
  const auto apply = [all](const PatchView& patch) {
    for (const Missing& missing : all)
      for_each_row(missing.rows, patch.extent,
                   [&](int64_t first, int64_t count) { std::fill_n(patch.data + first, count, missing.fill); });
  };
  add_intensity(drawn, "missing_section", apply, as_data);
  drawn.parameters.emplace_back("missing_section", "sections " + listed(sections));
}

}  // namespace

TransformEntry missing_section_transform() {
  return {"missing_section", "sections that are missing, whole or in part", draw,
          [](const AugmentationOptions& o) { return o.missing_section.enabled; }};
}

}  // namespace vox
