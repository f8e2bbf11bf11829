// Recycled buffers for blocks that are assembled from a file. Their bytes, idle ones too, are part of the budget.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.h"
#include "volume/budget.h"

namespace vox {

class BufferPool {
 public:
  explicit BufferPool(MemoryBudget& budget);

  // At least `bytes`; comes back to the pool when the last copy of the pointer goes.
  std::shared_ptr<std::byte> acquire(int64_t bytes, const std::string& what);
  bool free_idle();  // false: there was none
  int64_t bytes() const;

 private:
  struct State;
  MemoryBudget& budget_;
  std::shared_ptr<State> state_;  // shared with buffers in flight, which may outlive the pool's owner
};

}  // namespace vox
