// From a file to the voxels the store keeps: read, reoriented, preprocessed; whole, or slab by slab where nothing needs
// the whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/volume.h"
#include "config/options.h"
#include "volume/buffer_pool.h"
#include "volume/cache.h"
#include "volume/preprocess.h"
#include "volume/unit.h"

namespace vox {

class ThreadPool;

struct LoadCounts {
  std::atomic<int64_t> volumes{0}, bytes{0}, decode_ns{0}, preprocess_ns{0};
};

class Loader {
 public:
  Loader(const Preprocess& preprocess, MemoryBudget& budget, BufferPool& buffers)
      : preprocess_(preprocess), budget_(budget), buffers_(buffers) {}

  SharedVolume load(const Unit& unit, ThreadPool* pool);  // within the budget

  // Slices z_begin .. z_end of the unit, in order; `depth` a slab (the last may be thinner), or all at once.
  using Slab = std::function<void(int64_t z_begin, int64_t z_end, const VolumeInfo& info, const std::byte* voxels)>;
  void each_slab(const Unit& unit, int64_t depth, ThreadPool* pool, const Slab& slab);

  const LoadCounts& counts() const { return counts_; }

 private:
  void change(Volume& volume, const Unit& unit);

  const Preprocess& preprocess_;
  MemoryBudget& budget_;
  BufferPool& buffers_;
  LoadCounts counts_;
};

// Error that says where the first NaN or infinity is, where there is one.
struct Moments;
void require_finite(const Moments& moments, const Unit& unit, const Extent3& extent);

}  // namespace vox
