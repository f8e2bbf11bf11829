#include "pipeline/slots.h"

#include <functional>

namespace vox {
namespace {

constexpr int64_t kAlignment = 64;  // of each array in a slot

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::unique_ptr<Slot> make_slot(const std::vector<ArraySpec>& specs, int64_t batch_size, const Extent3& patch) {
  auto slot = std::make_unique<Slot>();
  int64_t total = 0;
  for (const ArraySpec& spec : specs) {
    BatchArray array{.dtype = spec.dtype,
                     .shape = {batch_size, spec.channels, patch.z, patch.y, patch.x},
                     .channels_last = spec.channels_last};
    total += aligned(array.bytes());
    slot->arrays[spec.name] = array;
  }
  slot->memory = Buffer(total);
  std::byte* next = slot->memory.data();
  for (auto& [name, array] : slot->arrays) {
    array.data = next;
    next += aligned(array.bytes());
  }
  return slot;
}

}  // namespace

GatherOutput output_of(const BatchArray& array, int64_t place, int64_t channel) {
  const Extent3 extent{array.shape[2], array.shape[3], array.shape[4]};
  const int64_t channels = array.shape[1];
  const int64_t first = array.channels_last ? place * channels * extent.voxels() + channel
                                            : (place * channels + channel) * extent.voxels();
  return {.data = array.data + first * size_of(array.dtype),
          .dtype = array.dtype,
          .extent = extent,
          .voxel_stride = array.channels_last ? channels : 1};
}

int64_t BatchArray::bytes() const {
  int64_t count = size_of(dtype);
  for (const int64_t size : shape) count *= size;
  return count;
}

SlotPool::SlotPool(const std::vector<ArraySpec>& specs, int64_t batch_size, const Extent3& patch, int count) {
  for (int i = 0; i < count; ++i) {
    slots_.push_back(make_slot(specs, batch_size, patch));
    free_.push_back(slots_.back().get());
  }
}

std::shared_ptr<Slot> SlotPool::take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) return nullptr;
  Slot* slot = free_.back();
  free_.pop_back();
  return {slot, [pool = shared_from_this()](Slot* used) {  // the pool outlives the pipeline while a batch is in use
            std::function<void()> returned;
            {
              std::lock_guard inner(pool->mutex_);
              pool->free_.push_back(used);
              returned = pool->returned_;
            }
            if (returned) returned();
          }};
}

void SlotPool::on_return(std::function<void()> returned) {
  std::lock_guard lock(mutex_);
  returned_ = std::move(returned);
}

}  // namespace vox
