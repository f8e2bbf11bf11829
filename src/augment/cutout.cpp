// Blanks boxes of the image. The label stays: the network is to conclude from what surrounds the gap.
#include <algorithm>

#include "augment/intensity.h"
#include "kernels/moments.h"

namespace vox {
namespace {

void blank(const PatchView& patch, const std::vector<Box3>& boxes, bool with_mean) {
  const float fill = with_mean ? static_cast<float>(moments_cpu(patch.data, patch.extent.voxels()).mean) : 0.0f;
  for (const Box3& box : boxes)
    for_each_row(box, patch.extent,
                 [&](int64_t first, int64_t count) { std::fill_n(patch.data + first, count, fill); });
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const CutoutOptions& cut = options.cutout;
  if (!random.chance(cut.prob)) return;
  const int64_t count = 1 + random.below(cut.boxes);
  std::vector<Box3> boxes;
  for (int64_t i = 0; i < count; ++i) {
    Box3 box = draw_box(context.patch, cut.size, "cutout.size", random);
    if (cut.sections > 0) {
      const int64_t thick = std::min(cut.sections, context.patch.z);
      box.begin.z = random.below(context.patch.z - thick + 1);
      box.end.z = box.begin.z + thick;
    }
    boxes.push_back(box);
  }
  const bool with_mean = cut.fill == "mean";
  add_intensity(
      drawn, "cutout", [boxes, with_mean](const PatchView& patch) { blank(patch, boxes, with_mean); },
      step::Fill{boxes, std::vector<float>(with_mean ? 0 : boxes.size(), 0.0f)});
  std::vector<std::string> texts;
  for (const Box3& box : boxes) texts.push_back(concat(box));
  drawn.parameters.emplace_back("cutout", join(texts, " "));
}

}  // namespace

TransformEntry cutout_transform() {
  return {"cutout", "blank boxes of the image", draw, [](const AugmentationOptions& o) { return o.cutout.enabled; }};
}

}  // namespace vox
