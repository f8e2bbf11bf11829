#include "base/volume.h"

namespace vox {

Volume allocate_volume(const VolumeInfo& info) {
  return {info, Buffer(info.bytes())};
}

VolumeView view_of(const Volume& volume, int64_t channel) {
  const VolumeInfo& info = volume.info;
  VOX_ASSERT(channel >= 0 && channel < info.channels);
  return {.data = volume.data.data() + channel * info.extent.voxels() * size_of(info.dtype),
          .dtype = info.dtype,
          .box = whole(info.extent),
          .extent = info.extent,
          .stride_z = info.extent.y * info.extent.x,
          .stride_y = info.extent.x,
          .scale = info.scale,
          .offset = info.offset};
}

}  // namespace vox
