// Work in pieces on a pool, or on this thread alone where there is none.
#pragma once

#include <cstdint>
#include <functional>

#include "base/thread_pool.h"

namespace vox {

inline void for_each_piece(ThreadPool* pool, int64_t count, const std::function<void(int64_t)>& piece) {
  if (pool != nullptr) return pool->for_each(count, piece);
  for (int64_t i = 0; i < count; ++i) piece(i);
}

}  // namespace vox
