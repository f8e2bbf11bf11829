// Values handed from one thread to another. Bounded, so that a slow consumer slows the producer instead of filling
// memory.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace vox {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  bool push(T item) {  // waits while full; false once closed, and the item is dropped
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || items_.size() < capacity_; });
    if (closed_) return false;
    items_.push_back(std::move(item));
    changed_.notify_all();
    return true;
  }
  std::optional<T> pop() {  // waits while empty; nullopt once closed and drained
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (error_) std::rethrow_exception(error_);
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    changed_.notify_all();
    return item;
  }
  void close(std::exception_ptr error = nullptr) {  // the first error wins; the consumer's next pop() rethrows it
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<T> items_;
  bool closed_ = false;
  std::exception_ptr error_;
};

}  // namespace vox
