// What is known of a sample before its transforms are drawn: which channels are masks, and what a shift must not lose.
#pragma once

#include <memory>
#include <vector>

#include "augment/augment.h"
#include "volume/marked.h"
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
  std::shared_ptr<Store> store_;
  Extent3 patch_;
  bool keeps_mask_;
  std::vector<int64_t> continuous_;
  MarkedBoxes boxes_;
};

}  // namespace vox
