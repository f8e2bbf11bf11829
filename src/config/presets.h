// Sets of augmentation under one name: a preset is a layer below everything that a recipe says.
#pragma once

#include "config/options.h"

namespace vox {

// Sets what augmentation.preset names in `options`, which hold the defaults otherwise; the patch decides whether
// nnU-Net's set treats slices one by one.
void apply_preset(const std::string& preset, const Extent3& patch, Options& options);

}  // namespace vox
