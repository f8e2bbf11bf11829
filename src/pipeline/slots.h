// The memory of batches: allocated once, handed out, and taken back when the last copy of a batch goes.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "kernels/gather.h"
#include "pipeline/pipeline.h"

namespace vox {

// Where the patch of one sample and channel lies inside a batch array.
GatherOutput output_of(const BatchArray& array, int64_t place, int64_t channel);

struct Slot {
  Buffer memory;
  std::map<std::string, BatchArray> arrays;
};

class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  SlotPool(const std::vector<ArraySpec>& specs, int64_t batch_size, const Extent3& patch, int count);

  // A free slot, or null; taking never waits. `returned` is called (from any thread) whenever one comes back.
  std::shared_ptr<Slot> take();
  void on_return(std::function<void()> returned);

 private:
  std::vector<std::unique_ptr<Slot>> slots_;
  std::mutex mutex_;  // guards everything below
  std::vector<Slot*> free_;
  std::function<void()> returned_;
};

}  // namespace vox
