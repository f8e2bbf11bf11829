// A bounded number of open files, the most recently used ones.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace vox {

template <class T>
class Handles {
 public:
  explicit Handles(int64_t most) : most_(most) {}

  // Opening happens outside the lock: two threads may both open a file at first; one handle stays.
  std::shared_ptr<T> get(uint64_t key, const std::function<std::shared_ptr<T>()>& open) {
    if (std::shared_ptr<T> handle = find(key)) return handle;
    std::shared_ptr<T> handle = open();
    std::shared_ptr<T> dropped;  // closed after the lock
    std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) return found->second.first;
    entries_[key] = {handle, order_.insert(order_.end(), key)};
    if (static_cast<int64_t>(entries_.size()) > most_) {
      const auto oldest = entries_.find(order_.front());
      dropped = std::move(oldest->second.first);
      order_.pop_front();
      entries_.erase(oldest);
    }
    return handle;
  }
  void erase(uint64_t key) {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    order_.erase(found->second.second);
    entries_.erase(found);
  }

 private:
  std::shared_ptr<T> find(uint64_t key) {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    order_.splice(order_.end(), order_, found->second.second);
    return found->second.first;
  }

  const int64_t most_;
  std::mutex mutex_;  // guards everything below
  std::unordered_map<uint64_t, std::pair<std::shared_ptr<T>, std::list<uint64_t>::iterator>> entries_;
  std::list<uint64_t> order_;  // least recently used first
};

int64_t most_open_files();  // that the store may hold; raises the process's limit as far as it may

}  // namespace vox
