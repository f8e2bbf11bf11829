// Gives every slice across an axis a brightness of its own, as scanners and microscopes do.
#include "augment/intensity.h"

namespace vox {
namespace {

struct Light {
  float factor, shift;
};

void illuminate(const PatchView& patch, int axis, const std::vector<Light>& lights) {
  const Extent3& extent = patch.extent;
  for (int64_t row = 0; row < extent.z * extent.y; ++row) {
    float* values = patch.data + row * extent.x;
    const Light* light = lights.data() + (axis == 0 ? row / extent.y : axis == 1 ? row % extent.y : 0);
    const int64_t step = axis == 2 ? 1 : 0;  // one light for the whole row, unless slices lie across x
    for (int64_t x = 0; x < extent.x; ++x) values[x] = values[x] * light[x * step].factor + light[x * step].shift;
  }
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const SliceIlluminationOptions& slices = options.slice_illumination;
  VOX_CHECK(!slices.axes.empty(), "augmentation.slice_illumination.axes is empty; name at least one of 0, 1, 2");
  if (!random.chance(slices.prob)) return;
  const size_t pick = static_cast<size_t>(random.below(static_cast<int64_t>(slices.axes.size())));
  const int axis = checked_axis(slices.axes[pick], "slice_illumination.axes");
  std::vector<Light> lights(static_cast<size_t>(context.patch[axis]));
  for (Light& light : lights) {
    light.factor = static_cast<float>(draw_between(slices.factor, "slice_illumination.factor", random));
    light.shift = static_cast<float>(draw_between(slices.shift, "slice_illumination.shift", random));
  }
  step::Lights as_data{axis, {}, {}};
  for (const Light& light : lights) {
    as_data.factor.push_back(light.factor);
    as_data.shift.push_back(light.shift);
  }
  add_intensity(
      drawn, "slice_illumination", [axis, lights](const PatchView& patch) { illuminate(patch, axis, lights); },
      as_data);
  drawn.parameters.emplace_back("slice_illumination", concat(lights.size(), " slices across axis ", axis));
}

}  // namespace

TransformEntry slice_illumination_transform() {
  return {"slice_illumination", "give every slice a brightness of its own", draw,
          [](const AugmentationOptions& o) { return o.slice_illumination.enabled; }};
}

}  // namespace vox
