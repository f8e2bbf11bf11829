#include "volume/buffer_pool.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace vox {
namespace {
// Sizes are rounded up so that boxes which differ by a few voxels share buffers.
constexpr int64_t kGrain = int64_t{1} << 16;
}  // namespace

struct BufferPool::State {
  struct Item {
    Buffer buffer;
    Reservation bytes;
  };
  std::mutex mutex;  // guards everything below
  std::vector<std::unique_ptr<Item>> idle;
  int64_t total = 0;

  std::unique_ptr<Item> take(int64_t bytes) {  // the smallest that is large enough and not wasteful
    std::lock_guard lock(mutex);
    auto best = idle.end();
    for (auto item = idle.begin(); item != idle.end(); ++item) {
      const int64_t size = (*item)->buffer.size();
      if (size < bytes || size > 2 * bytes + kGrain) continue;
      if (best == idle.end() || size < (*best)->buffer.size()) best = item;
    }
    if (best == idle.end()) return nullptr;
    std::unique_ptr<Item> item = std::move(*best);
    idle.erase(best);
    return item;
  }
};

BufferPool::BufferPool(MemoryBudget& budget) : budget_(budget), state_(std::make_shared<State>()) {}

std::shared_ptr<std::byte> BufferPool::acquire(int64_t bytes, const std::string& what) {
  const int64_t rounded = (std::max<int64_t>(bytes, 1) + kGrain - 1) / kGrain * kGrain;
  std::unique_ptr<State::Item> item = state_->take(rounded);
  if (!item) {
    Reservation reservation = budget_.reserve(rounded, what);
    item = std::make_unique<State::Item>(State::Item{Buffer(rounded), std::move(reservation)});
    std::lock_guard lock(state_->mutex);
    state_->total += rounded;
  }
  std::byte* data = item->buffer.data();
  return {data, [state = state_, raw = item.release()](std::byte*) {
            std::unique_ptr<State::Item> back(raw);
            std::lock_guard lock(state->mutex);
            state->idle.push_back(std::move(back));
          }};
}

bool BufferPool::free_idle() {
  std::vector<std::unique_ptr<State::Item>> dropped;  // freed after the lock
  std::lock_guard lock(state_->mutex);
  dropped.swap(state_->idle);
  for (const auto& item : dropped) state_->total -= item->buffer.size();
  return !dropped.empty();
}

int64_t BufferPool::bytes() const {
  std::lock_guard lock(state_->mutex);
  return state_->total;
}

}  // namespace vox
