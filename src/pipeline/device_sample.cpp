#include "pipeline/device_sample.h"

#include <cstring>

#include "augment/augment.h"
#include "base/error.h"

namespace vox {

std::string why_on_host(const AugmentationOptions& augmentation) {
  const std::string name = host_only_transform(augmentation);
  return name.empty() ? "" : concat("augmentation.", name, " runs on the CPU alone");
}

VolumeView copy_box(const VolumeView& view, const Box3& box, std::byte* memory) {
  VOX_ASSERT(view.box.contains(box));
  const Extent3 extent = box.extent();
  const int64_t size = size_of(view.dtype), row_bytes = extent.x * size;
  std::byte* out = memory;
  for (int64_t z = box.begin.z; z < box.end.z; ++z)
    for (int64_t y = box.begin.y; y < box.end.y; ++y) {
      const int64_t from = (z - view.box.begin.z) * view.stride_z + (y - view.box.begin.y) * view.stride_y +
                           box.begin.x - view.box.begin.x;
      std::memcpy(out, view.data + from * size, static_cast<size_t>(row_bytes));
      out += row_bytes;
    }
  VolumeView copy = view;
  copy.data = memory;
  copy.box = box;
  copy.stride_z = extent.y * extent.x;
  copy.stride_y = extent.x;
  return copy;
}

}  // namespace vox
