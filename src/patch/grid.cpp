// A fixed grid that covers every voxel of every case, in order; the seed does not matter. The last patch of an axis is
// moved back into the volume.
#include <algorithm>

#include "patch/placement.h"

namespace vox {
namespace {

class GridSampler : public Sampler {
 public:
  explicit GridSampler(const SamplerSetup& setup) : setup_(setup) {
    int64_t total = 0;
    for (const int64_t index : setup_.cases) ends_.push_back(total += steps(setup_.source->extent(index)).voxels());
  }
  PatchChoice choose(uint64_t, int64_t sample) const override {
    const int64_t place = sample % ends_.back();
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), place);
    const size_t which = static_cast<size_t>(end - ends_.begin());
    const int64_t within = place - (which == 0 ? 0 : ends_[which - 1]);
    const int64_t index = setup_.cases[which];
    const Extent3 volume = setup_.source->extent(index), patch = setup_.data.patch_size, count = steps(volume);
    const Extent3 step{within / (count.y * count.x), within / count.x % count.y, within % count.x};
    const Extent3 centre{step.z * patch.z + patch.z / 2, step.y * patch.y + patch.y / 2,
                         step.x * patch.x + patch.x / 2};
    return {index, place_about(centre, patch, volume)};
  }
  int64_t samples_per_pass() const override { return ends_.back(); }

 private:
  Extent3 steps(const Extent3& volume) const {
    Extent3 count;
    for (int axis = 0; axis < 3; ++axis) {
      const int64_t side = setup_.data.patch_size[axis];
      count[axis] = (volume[axis] + side - 1) / side;
    }
    return count;
  }

  SamplerSetup setup_;
  std::vector<int64_t> ends_;  // number of the first sample after each case
};

}  // namespace

SamplerEntry grid_sampler() {
  return {"grid", "a fixed grid over every case, in order",
          [](const SamplerSetup& setup) -> std::unique_ptr<Sampler> { return std::make_unique<GridSampler>(setup); }};
}

}  // namespace vox
