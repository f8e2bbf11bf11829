// Adds normal noise, a value of its own for every voxel and channel.
#include "kernels/noise.h"
#include "augment/intensity.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  if (!random.chance(options.noise.prob)) return;
  const auto sigmas = draw_channels(options.noise, context.channels, random, [&] {
    return static_cast<float>(draw_between(options.noise.sigma, "noise.sigma", random));
  });
  const Random voxels = random.per_voxel();
  add_intensity(
      drawn, "noise", sigmas,
      [voxels](const PatchView& patch, float sigma) {
        const int64_t count = patch.extent.voxels();
        add_noise_cpu(patch.data, count, sigma, voxels, patch.channel * count);
      },
      [voxels, patch = context.patch](float sigma, int64_t channel) {
        return step::Noise{sigma, voxels, channel * patch.voxels()};
      },
      [](float sigma) { return "sigma " + format_number(sigma, 4); });
}

}  // namespace

TransformEntry noise_transform() {
  return {"noise", "add normal noise", draw, [](const AugmentationOptions& o) { return o.noise.enabled; }};
}

}  // namespace vox
