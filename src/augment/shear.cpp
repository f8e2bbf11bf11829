// Slants each axis along the two others, in mm.
#include "augment/spatial.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const bool chosen = random.chance(options.shear.prob);
  if (!(options.shear.with_rotate ? drawn.rotates : chosen)) return;
  double slanted[3][3];
  std::string text;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column)
      slanted[row][column] = row == column ? 1 : draw_between(options.shear.range, "shear.range", random);
    text += (row == 0 ? "" : " ") + triple(slanted[row]);
  }
  add_map(drawn, from_millimetres(slanted, context.spacing));
  drawn.parameters.emplace_back("shear", text);
}

}  // namespace

TransformEntry shear_transform() {
  return {"shear", "slant axes along each other", draw, [](const AugmentationOptions& o) { return o.shear.enabled; }};
}

}  // namespace vox
