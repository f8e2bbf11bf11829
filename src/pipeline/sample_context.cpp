#include "pipeline/sample_context.h"

#include <algorithm>

namespace vox {
namespace {

// A share m of the higher of two values has the variance m (1 - m) of their distance squared; any value in between
// makes it smaller.
bool has_two_values(const CaseFacts& facts, size_t channel) {
  const double low = facts.channel_min[channel], high = facts.channel_max[channel], mean = facts.channel_mean[channel];
  const double variance = facts.channel_std[channel] * facts.channel_std[channel];
  return (mean - low) * (high - mean) - variance <= 1e-7 * (high - low) * (high - low);
}

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
      if (!*box) *box = here;
      for (int axis = 0; axis < 3; ++axis) {
        (*box)->begin[axis] = std::min((*box)->begin[axis], here.begin[axis]);
        (*box)->end[axis] = std::max((*box)->end[axis], here.end[axis]);
      }
    }
  }
}

}  // namespace

std::vector<int64_t> continuous_channels(const Store& store) {
  std::vector<int64_t> continuous;
  const size_t cases = store.dataset().cases.size();
  for (int64_t channel = 0; channel < store.image_channels(); ++channel) {
    bool mask = true;
    for (size_t i = 0; i < cases && mask; ++i)
      mask = has_two_values(store.facts(static_cast<int64_t>(i)), static_cast<size_t>(channel));
    if (!mask) continuous.push_back(channel);
  }
  return continuous;
}

SampleContexts::SampleContexts(std::shared_ptr<Store> store, const Extent3& patch,
                               const AugmentationOptions& augmentation)
    : store_(std::move(store)),
      patch_(patch),
      keeps_mask_(augmentation.enabled && augmentation.shift.enabled && augmentation.shift.keep == "mask"),
      continuous_(continuous_channels(*store_)) {}

DrawContext SampleContexts::of(int64_t case_index, const Extent3& begin) const {
  DrawContext context{.patch = patch_,
                      .spacing = store_->facts(case_index).spacing,
                      .channels = store_->image_channels(),
                      .continuous = continuous_};
  if (!keeps_mask_) return context;
  const std::optional<Box3> marked = marked_box(case_index);
  if (!marked) return context;
  const Box3 seen = intersect(*marked, {begin, begin + patch_});  // what lies outside the patch cannot be kept in it
  if (!seen.empty()) context.kept = Box3{seen.begin - begin, seen.end - begin};
  return context;
}

std::optional<Box3> SampleContexts::marked_box(int64_t case_index) const {
  const std::lock_guard lock(mutex_);
  const auto known = boxes_.find(case_index);
  if (known != boxes_.end()) return known->second;
  const Case& files = store_->dataset().cases[static_cast<size_t>(case_index)];
  std::optional<Box3> box;
  if (!files.mask.empty() || !files.label.empty()) {
    const Role role = files.mask.empty() ? Role::kLabel : Role::kMask;
    const Extent3& extent = store_->facts(case_index).extent;
    constexpr int64_t kSlab = 32;
    for (int64_t z = 0; z < extent.z; z += kSlab) {
      const Box3 slab{{z, 0, 0}, {std::min(extent.z, z + kSlab), extent.y, extent.x}};
      grow_to_marked(store_->fetch(case_index, role, 0, slab).view, slab, &box);
    }
  }
  boxes_.emplace(case_index, box);
  return box;
}

}  // namespace vox
