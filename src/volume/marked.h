// The smallest box that holds everything a mask marks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "volume/store.h"

namespace vox {

constexpr int64_t kMarkedSlices = 32;  // looked at at once
// Of voxels other than 0; the mask is read slab by slab, by ascending z. None where there is no such voxel.
std::optional<Box3> marked_box(const std::function<Block(const Box3&)>& mask, const Extent3& extent,
                               int64_t slices = kMarkedSlices);

// The box of each case's mask, or of its label where it has no mask; found when first asked for.
class MarkedBoxes {
 public:
  explicit MarkedBoxes(Store& store) : store_(store) {}
  std::optional<Box3> of(int64_t case_index) const;  // any thread

 private:
  Store& store_;
  mutable std::mutex mutex_;  // guards boxes_
  mutable std::map<int64_t, std::optional<Box3>> boxes_{};
};

}  // namespace vox
