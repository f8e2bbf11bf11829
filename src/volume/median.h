// Median of the cube around each voxel; outside, the volume is mirrored with its edge voxel repeated (as
// scipy.ndimage.median_filter does by default).
#pragma once

#include "base/volume.h"

namespace vox {

Volume median_filter(const Volume& volume, int64_t size);  // size: odd, voxels along each axis

}  // namespace vox
