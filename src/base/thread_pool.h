// A fixed set of threads for work that comes in pieces (strips of a file, cases of a dataset, slabs of a volume).
// The calling thread works too, so a pool of size 1 has no thread of its own and a pool never deadlocks when used
// from inside one of its own pieces.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace vox {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // in all, the caller's included; Error where the machine has no room for them
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls piece(i) for 0 <= i < count, in any order, and returns when all are done. The first exception is rethrown
  // once the pieces under way have ended; pieces not yet begun are dropped.
  void for_each(int64_t count, const std::function<void(int64_t)>& piece);

 private:
  struct Job;
  void work();
  void stop();

  std::vector<std::thread> threads_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool stopping_ = false;
};

// CPUs this process may use: affinity and the container's quota, not what the machine has.
int available_cpus();

}  // namespace vox
