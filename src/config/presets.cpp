#include "config/presets.h"

#include "base/error.h"

namespace vox {
namespace {

template <class T>
T& on(T& transform, double prob) {
  transform.enabled = true;
  transform.prob = prob;
  return transform;
}

void flips(AugmentationOptions& o) {
  on(o.flip, 0.5);
}

// nnU-Net v2, get_training_transforms: order, probabilities and ranges. Its SpatialTransform turns and scales in
// voxels, Rz Ry Rx S; a factor above 1 shows more of the volume. Its gamma, contrast and brightness choose a side of 1
// first.
void nnunet(Options& options, const Extent3& patch) {
  AugmentationOptions& o = options.augmentation;
  options.data.sampler = "foreground";
  options.data.foreground_fraction = 0.33;
  o.label_interpolation = "linear";
  on(o.rotate, 0.2).unit = "voxels";
  on(o.scale, 0.2).range = {0.7, 1.4};
  o.scale.of_region = true;
  on(o.noise, 0.1).sigma = {0, 0.1};
  on(o.blur, 0.2).sigma = {0.5, 1.0};
  o.blur.per_axis = o.blur.per_channel = true;
  o.blur.channel_prob = 0.5;
  on(o.brightness, 0.15).factor = {0.75, 1.25};
  on(o.contrast, 0.15).factor = {0.75, 1.25};
  on(o.low_resolution, 0.25).scale = {0.5, 1};
  o.low_resolution.channel_prob = 0.5;
  on(o.gamma_inverted, 0.1).range = {0.7, 1.5};
  on(o.gamma, 0.3).range = {0.7, 1.5};
  o.brightness.balanced = o.contrast.balanced = o.gamma.balanced = o.gamma_inverted.balanced = true;
  o.brightness.per_channel = o.contrast.per_channel = o.gamma.per_channel = o.gamma_inverted.per_channel = true;
  o.low_resolution.per_channel = o.gamma.keep_statistics = o.gamma_inverted.keep_statistics = true;
  on(o.flip, 0.5);
  if (std::max(patch.y, patch.x) <= 3 * patch.z) return;
  o.rotate.axes = {0};  // thick slices: each is turned and scaled in its own plane
  o.rotate.degrees = {-180, 180};
  o.scale.axes = {1, 2};
  o.low_resolution.axes = {1, 2};
}

// The trainer of the Vesuvius surface models (probabilities and ranges of its 3D pipeline), with the free rotation,
// scaling and elastic deformation of the nnU-Net fork beside it, and cutout.
void scroll_heavy(AugmentationOptions& o) {
  on(o.flip, 0.5);
  on(o.rot90, 0.5).axes = {0, 1, 2};
  on(o.transpose, 0.2);
  on(o.rotate, 0.5).degrees = {-30, 30};
  on(o.scale, 0.2).range = {0.7, 1.4};
  on(o.elastic, 0.3).magnitude = {1, 4};
  o.elastic.grid = 24;
  on(o.noise, 0.3).sigma = {0, 0.2};
  on(o.blur, 0.3).sigma = {0.3, 1.5};
  on(o.sharpen, 0.2);
  on(o.brightness, 0.15).factor = {0.75, 1.25};
  on(o.brightness_add, 0.1).shift = {-0.5, 0.5};
  on(o.brightness_gradient, 0.2);
  on(o.contrast, 0.15).factor = {0.75, 1.25};
  on(o.low_resolution, 0.4).scale = {0.25, 1};
  on(o.gamma_inverted, 0.2).range = {0.7, 1.5};
  on(o.gamma, 0.4).range = {0.7, 1.5};
  o.gamma.balanced = o.gamma_inverted.balanced = o.gamma.keep_statistics = o.gamma_inverted.keep_statistics = true;
  on(o.invert, 0.2);
  on(o.slice_illumination, 0.4);
  on(o.cutout, 0.3).boxes = 3;
}

// PyTorch Connectomics on Lucchi as it takes effect: rotation, scaling and shear are one affine transform, its motion
// blur is a Gaussian in the section, its missing parts are black holes in one section. Its elastic field is white noise
// smoothed by a Gaussian of 5 to 8 voxels, with a deviation of 0.2 to 1.2 voxels: that of control points 11 voxels
// apart with three times the deviation.
void em(AugmentationOptions& o) {
  on(o.flip, 0.5);
  on(o.rot90, 0.5).axes = {0};
  on(o.rotate, 0.3).degrees = {-5.73, 5.73};
  on(o.scale, 0.3).range = {0.95, 1.05};
  on(o.shear, 0.3).range = {-0.05, 0.05};
  o.scale.per_axis = o.scale.with_rotate = o.shear.with_rotate = true;
  on(o.elastic, 0.3).magnitude = {0.6, 3.5};
  o.elastic.grid = 11;
  on(o.misalignment, 0.5).voxels = 16;
  on(o.noise, 0.5).sigma = {0, 0.1};
  on(o.brightness_add, 0.7).shift = {-0.2, 0.2};
  on(o.gamma, 0.7).range = {0.7, 1.4};
  on(o.cutout, 0.2).size = {0.1, 0.25};
  o.cutout.sections = 1;
  o.cutout.fill = "zero";
  on(o.cut_noise, 0.3).size = {0.1, 0.25};
  o.cut_noise.sigma = {0.05, 0.15};
  on(o.missing_section, 0.4).sections = 3;
  on(o.blurred_section, 0.3).sections = 3;
  o.blurred_section.sigma = {1, 3};
}

// OpenKBP: axis 1 runs from right to left, axis 2 from head to foot; image channels 3 and 4 are the parotids (channel 0
// is the CT). The nine beams stand 40 degrees apart.
void dose(AugmentationOptions& o) {
  on(o.flip, 0.4).axes = {1, 2};
  o.flip.swap_channels = {3, 4};
  o.flip.swap_axis = 1;
  on(o.rotate, 0.3).axes = {2};
  o.rotate.degrees = {-160, 160};
  o.rotate.step = 40;
  on(o.shift, 0.8).voxels = {-20, 20};
  o.shift.whole = true;
  o.shift.keep = "mask";
}

}  // namespace

void apply_preset(const std::string& preset, const Extent3& patch, Options& options) {
  AugmentationOptions& o = options.augmentation;
  o.preset = preset;
  if (preset == "flips") return flips(o);
  if (preset == "nnunet") return nnunet(options, patch);
  if (preset == "scroll_heavy") return scroll_heavy(o);
  if (preset == "em") return em(o);
  if (preset == "dose") return dose(o);
  VOX_ASSERT(preset == "none");
}

}  // namespace vox
