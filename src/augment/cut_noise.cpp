// Adds normal noise inside boxes.
#include "augment/intensity.h"
#include "kernels/noise.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const CutNoiseOptions& cut = options.cut_noise;
  if (!random.chance(cut.prob)) return;
  const int64_t count = 1 + random.below(cut.boxes);
  std::vector<Box3> boxes;
  for (int64_t i = 0; i < count; ++i) boxes.push_back(draw_box(context.patch, cut.size, "cut_noise.size", random));
  const float sigma = static_cast<float>(draw_between(cut.sigma, "cut_noise.sigma", random));
  const Random voxels = random.per_voxel();
  const auto apply = [boxes, sigma, voxels](const PatchView& patch) {
    const int64_t before = patch.channel * patch.extent.voxels();
    for (const Box3& box : boxes)
      for_each_row(box, patch.extent, [&](int64_t first, int64_t length) {
        add_noise_cpu(patch.data + first, length, sigma, voxels, before + first);
      });
  };
  drawn.intensity.emplace_back("cut_noise", apply);
  drawn.steps.push_back([boxes, sigma, voxels, patch = context.patch](int64_t channel) {
    return step::NoiseInBoxes{boxes, sigma, voxels, channel * patch.voxels()};
  });
  std::vector<std::string> texts;
  for (const Box3& box : boxes) texts.push_back(concat(box));
  drawn.parameters.emplace_back("cut_noise", concat("sigma ", format_number(sigma, 4), " in ", join(texts, " ")));
}

}  // namespace

TransformEntry cut_noise_transform() {
  return {"cut_noise", "add normal noise inside boxes", draw,
          [](const AugmentationOptions& o) { return o.cut_noise.enabled; }};
}

}  // namespace vox
