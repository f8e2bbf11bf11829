// What is known of a sample before its transforms are drawn: which channels are masks, and what a shift must not lose.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "augment/augment.h"
#include "volume/store.h"

namespace vox {

// Image channels that have more than two values in some case; the others are masks (or empty). All of them where every
// channel looks like a mask.
std::vector<int64_t> continuous_channels(const Store& store);

class SampleContexts {
 public:
  SampleContexts(std::shared_ptr<Store> store, const Extent3& patch, const AugmentationOptions& augmentation);
  DrawContext of(int64_t case_index, const Extent3& begin) const;  // any thread

 private:
  std::optional<Box3> marked_box(int64_t case_index) const;

  std::shared_ptr<Store> store_;
  Extent3 patch_;
  bool keeps_mask_;
  std::vector<int64_t> continuous_;
  mutable std::mutex mutex_;                                // guards boxes_
  mutable std::map<int64_t, std::optional<Box3>> boxes_{};  // by case, found when first asked for
};

}  // namespace vox
