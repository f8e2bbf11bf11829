// Which files can be read slab by slab.
#pragma once

#include "base/volume.h"

namespace vox {

// Whether a slab of slices costs no more to read than its share of the file.
inline bool comes_in_slabs(const VolumeInfo& info) {
  return info.voxels() > 0 && (info.codec == "none" || (info.chunk.z > 0 && info.chunk.z < info.extent.z));
}

}  // namespace vox
