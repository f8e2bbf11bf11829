// A volume on a grid of another size over the same region: voxel o of the output has its centre at
// (o + 1/2) * in / out - 1/2 of the input. Values are interpolated linearly (integers rounded), classes taken from the
// nearest voxel; beyond the outermost centres the edge voxel continues. Spacing and affine follow.
#pragma once

#include "base/volume.h"

namespace vox {

enum class ResampleMethod { kLinear, kNearest };

Volume resample(const Volume& volume, const Extent3& extent, ResampleMethod method);
VolumeInfo resampled_info(const VolumeInfo& info, const Extent3& extent);

}  // namespace vox
