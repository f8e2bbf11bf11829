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
      continuous_(continuous_channels(*store_)),
      boxes_(*store_) {}

DrawContext SampleContexts::of(int64_t case_index, const Extent3& begin) const {
  DrawContext context{.patch = patch_,
                      .spacing = store_->facts(case_index).spacing,
                      .channels = store_->image_channels(),
                      .continuous = continuous_};
  if (!keeps_mask_) return context;
  const std::optional<Box3> marked = boxes_.of(case_index);
  if (!marked) return context;
  const Box3 seen = intersect(*marked, {begin, begin + patch_});  // what lies outside the patch cannot be kept in it
  if (!seen.empty()) context.kept = Box3{seen.begin - begin, seen.end - begin};
  return context;
}

}  // namespace vox
