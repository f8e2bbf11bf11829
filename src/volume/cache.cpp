#include "volume/cache.h"

#include <utility>
#include <vector>

#include "base/span.h"

namespace vox {

SharedVolume VolumeCache::touch(Entry& entry) {
  order_.splice(order_.end(), order_, entry.place);
  ++hits_;
  return entry.volume;
}

SharedVolume VolumeCache::find(int64_t key) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || !found->second.volume) return nullptr;
  return touch(found->second);
}

SharedVolume VolumeCache::get(int64_t key, const std::function<SharedVolume()>& load) {
  std::unique_lock lock(mutex_);
  if (const auto found = entries_.find(key); found != entries_.end() && !found->second.volume) {
    const Clock::time_point start = Clock::now();
    changed_.wait(lock, [&] {
      const auto now = entries_.find(key);
      return now == entries_.end() || now->second.volume;
    });
    waited_s_ += seconds_since(start);
  }
  if (const auto found = entries_.find(key); found != entries_.end()) return touch(found->second);
  ++misses_;
  entries_[key] = {nullptr, order_.insert(order_.end(), key)};
  lock.unlock();
  SharedVolume volume;
  try {
    volume = load();
  } catch (...) {
    erase(key);
    throw;
  }
  lock.lock();
  entries_[key].volume = volume;
  changed_.notify_all();
  return volume;
}

void VolumeCache::erase(int64_t key) {
  SharedVolume dropped;  // freed after the lock
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  dropped = std::move(found->second.volume);
  order_.erase(found->second.place);
  entries_.erase(found);
  changed_.notify_all();
}

bool VolumeCache::free_idle(int64_t bytes) {
  std::vector<SharedVolume> dropped;  // freed after the lock: unmapping takes time
  std::lock_guard lock(mutex_);
  for (auto place = order_.begin(); place != order_.end() && bytes > 0;) {
    const auto found = entries_.find(*place++);
    SharedVolume& volume = found->second.volume;
    if (!volume || volume.use_count() > 1) continue;
    bytes -= volume->bytes.bytes();
    dropped.push_back(std::move(volume));
    order_.erase(found->second.place);
    entries_.erase(found);
  }
  return !dropped.empty();
}

int64_t VolumeCache::hits() const {
  std::lock_guard lock(mutex_);
  return hits_;
}
int64_t VolumeCache::misses() const {
  std::lock_guard lock(mutex_);
  return misses_;
}
double VolumeCache::waited_s() const {
  std::lock_guard lock(mutex_);
  return waited_s_;
}

}  // namespace vox
