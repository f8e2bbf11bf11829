#include "ops/parallel.h"

#include <ATen/Parallel.h>

#include <memory>
#include <mutex>

#include "base/thread_pool.h"

namespace vox::ops {
namespace {

std::shared_ptr<ThreadPool> compute_pool() {
  static std::mutex guard;  // of the pool
  static std::shared_ptr<ThreadPool> pool;
  const std::lock_guard lock(guard);
  if (!pool || pool->size() != at::get_num_threads()) pool = std::make_shared<ThreadPool>(at::get_num_threads());
  return pool;
}

}  // namespace

void for_each_piece(int64_t count, const std::function<void(int64_t)>& piece) {
  if (count > 1 && at::get_num_threads() > 1) return compute_pool()->for_each(count, piece);
  for (int64_t i = 0; i < count; ++i) piece(i);
}

}  // namespace vox::ops
