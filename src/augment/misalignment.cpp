// Sections (slices along z of the patch) that were cut or stitched out of place. Image and label move alike, as in the
// original, but what comes in from the side is read from the volume instead of being filled with zeros: the shift is
// part of the map.
#include "augment/spatial.h"
#include "base/error.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const MisalignmentOptions& misalignment = options.misalignment;
  const int64_t sections = context.patch.z;
  if (sections < 2 || !random.chance(misalignment.prob)) return;
  const bool slip = random.chance(misalignment.slip_prob);
  const int64_t first = 1 + random.below(sections - 1);
  const int64_t dy = random.below(2 * misalignment.voxels + 1) - misalignment.voxels;
  const int64_t dx = random.below(2 * misalignment.voxels + 1) - misalignment.voxels;
  Deformation& deformation = deformation_of(drawn);
  deformation.section_y.assign(static_cast<size_t>(sections), 0);
  deformation.section_x.assign(static_cast<size_t>(sections), 0);
  for (int64_t z = first; z < (slip ? first + 1 : sections); ++z) {
    deformation.section_y[static_cast<size_t>(z)] = static_cast<float>(dy);
    deformation.section_x[static_cast<size_t>(z)] = static_cast<float>(dx);
  }
  drawn.parameters.emplace_back("misalignment",
                                concat(slip ? "section " : "sections from ", first, " by ", dy, ",", dx));
}

}  // namespace

TransformEntry misalignment_transform() {
  return {"misalignment", "move one section, or all that follow it", draw,
          [](const AugmentationOptions& o) { return o.misalignment.enabled; }};
}

}  // namespace vox
