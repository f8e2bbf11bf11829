#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <fstream>
#include <string>

#include "base/start_thread.h"

namespace vox {

struct ThreadPool::Job {
  const std::function<void(int64_t)>* piece;
  int64_t count;
  std::atomic<int64_t> next{0};
  std::mutex mutex;  // guards everything below
  std::condition_variable done;
  int workers = 0;
  std::exception_ptr error;

  bool exhausted() const { return next.load() >= count; }

  void run() {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        (*piece)(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  }
  void enter() {
    std::lock_guard lock(mutex);
    ++workers;
  }
  void leave() {
    std::lock_guard lock(mutex);
    if (--workers == 0) done.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i) threads_.push_back(start_thread([this] { work(); }));
  } catch (...) {  // those that did start would wait for ever
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const std::shared_ptr<Job> job = jobs_.front();
    if (job->exhausted()) {
      jobs_.pop_front();
      continue;
    }
    job->enter();  // before the pool's lock is let go: the caller must see this worker when it waits
    lock.unlock();
    job->run();
    job->leave();
    lock.lock();
  }
}

void ThreadPool::for_each(int64_t count, const std::function<void(int64_t)>& piece) {
  if (count <= 0) return;
  const auto job = std::make_shared<Job>();
  job->piece = &piece;
  job->count = count;
  if (count > 1 && !threads_.empty()) {
    std::lock_guard lock(mutex_);
    jobs_.push_back(job);
    changed_.notify_all();
  }
  job->run();
  {
    std::lock_guard lock(mutex_);  // after this no worker can enter
    std::erase(jobs_, job);
  }
  std::unique_lock lock(job->mutex);
  job->done.wait(lock, [&] { return job->workers == 0; });
  if (job->error) std::rethrow_exception(job->error);
}

namespace {

// Whole CPUs of the container's quota (cgroup v2, then v1), or a large number where there is none.
double quota_cpus() {
  std::string quota, period;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file >> quota >> period && quota != "max")
    return std::stod(quota) / std::stod(period);
  if (std::ifstream file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); file >> quota && quota != "-1") {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
    if (!period.empty()) return std::stod(quota) / std::stod(period);
  }
  return 1e6;
}

}  // namespace

int available_cpus() {
  cpu_set_t set;
  int count = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) count = CPU_COUNT(&set);
  return std::max(1, std::min(count, static_cast<int>(std::ceil(quota_cpus()))));
}

}  // namespace vox
