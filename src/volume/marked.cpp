#include "volume/marked.h"

#include <algorithm>

namespace vox {
namespace {

bool is_zero(const std::byte* value, int64_t bytes) {
  return std::all_of(value, value + bytes, [](std::byte b) { return b == std::byte{0}; });
}

void grow_to_marked(const VolumeView& view, const Box3& slab, std::optional<Box3>* box) {
  const int64_t size = size_of(view.dtype);
  for (int64_t z = slab.begin.z; z < slab.end.z; ++z) {
    for (int64_t y = slab.begin.y; y < slab.end.y; ++y) {
      const std::byte* row = view.data + ((z - view.box.begin.z) * view.stride_z +
                                          (y - view.box.begin.y) * view.stride_y + slab.begin.x - view.box.begin.x) *
                                             size;
      int64_t first = slab.begin.x, last = slab.end.x - 1;
      while (first <= last && is_zero(row + (first - slab.begin.x) * size, size)) ++first;
      if (first > last) continue;
      while (is_zero(row + (last - slab.begin.x) * size, size)) --last;
      const Box3 here{{z, y, first}, {z + 1, y + 1, last + 1}};
      *box = *box ? Box3{min((*box)->begin, here.begin), max((*box)->end, here.end)} : here;
    }
  }
}

}  // namespace

std::optional<Box3> marked_box(const std::function<Block(const Box3&)>& mask, const Extent3& extent, int64_t slices) {
  std::optional<Box3> box;
  for (int64_t z = 0; z < extent.z; z += slices) {
    const Box3 slab{{z, 0, 0}, {std::min(extent.z, z + slices), extent.y, extent.x}};
    grow_to_marked(mask(slab).view, slab, &box);
  }
  return box;
}

std::optional<Box3> MarkedBoxes::of(int64_t case_index) const {
  const std::lock_guard lock(mutex_);
  const auto known = boxes_.find(case_index);
  if (known != boxes_.end()) return known->second;
  const Case& files = store_.dataset().cases[static_cast<size_t>(case_index)];
  std::optional<Box3> box;
  if (!files.mask.empty() || !files.label.empty()) {
    const Role role = files.mask.empty() ? Role::kLabel : Role::kMask;
    box = marked_box([&](const Box3& slab) { return store_.fetch(case_index, role, 0, slab); },
                     store_.facts(case_index).extent);
  }
  boxes_.emplace(case_index, box);
  return box;
}

}  // namespace vox
