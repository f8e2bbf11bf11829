// Adds normal noise, a value of its own for every voxel and channel.
#include "kernels/noise.h"

#include "augment/spatial.h"
#include "base/text.h"

namespace vox {
namespace {

void draw(const AugmentationOptions& options, const Extent3&, const Spacing3&, Random random, Drawn& drawn) {
  if (!random.chance(options.noise.prob)) return;
  const float sigma = static_cast<float>(draw_between(options.noise.sigma, "noise.sigma", random));
  const Random voxels = random.per_voxel();
  drawn.intensity.emplace_back("noise", [sigma, voxels](const PatchView& patch) {
    const int64_t count = patch.extent.voxels();
    add_noise_cpu(patch.data, count, sigma, voxels, patch.channel * count);
  });
  drawn.parameters.emplace_back("noise", "sigma " + format_number(sigma, 4));
}

}  // namespace

TransformEntry noise_transform() {
  return {"noise", "add normal noise", draw, [](const AugmentationOptions& o) { return o.noise.enabled; }};
}

}  // namespace vox
