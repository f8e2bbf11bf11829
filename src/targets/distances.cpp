#include "targets/distances.h"

#include <algorithm>

namespace vox {

std::vector<float> squared_distances_to_hidden(const LabelPatch& patch, const EdtOptions& options) {
  std::vector<float> squared =
      squared_distances_to([&](int64_t voxel) { return !patch.seen(voxel); }, patch.extent, options);
  const Extent3& e = patch.extent;
  const Spacing3& mm = options.spacing;
  auto* value = squared.data();
  for (int64_t z = 0; z < e.z; ++z)
    for (int64_t y = 0; y < e.y; ++y)
      for (int64_t x = 0; x < e.x; ++x, ++value) {
        const double beyond = std::min({static_cast<double>(std::min(z + 1, e.z - z)) * mm.z_mm,
                                        static_cast<double>(std::min(y + 1, e.y - y)) * mm.y_mm,
                                        static_cast<double>(std::min(x + 1, e.x - x)) * mm.x_mm});
        *value = std::min(*value, static_cast<float>(beyond * beyond));
      }
  return squared;
}

}  // namespace vox
