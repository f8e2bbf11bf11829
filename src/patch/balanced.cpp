// Each label that a case has is equally often at the centre, background included. Background needs no list of voxels:
// a uniform patch shows it.
#include "patch/placement.h"

namespace vox {
namespace {

class BalancedSampler : public Sampler {
 public:
  explicit BalancedSampler(const SamplerSetup& setup) : setup_(setup) {}
  PatchChoice choose(uint64_t seed, int64_t sample) const override {
    const int64_t index = visited_case(setup_, seed, sample);
    const Extent3 volume = setup_.source->extent(index), patch = setup_.data.patch_size;
    Random random = patch_random(seed, sample);
    const std::vector<int64_t> labels = setup_.source->labels_present(index);
    if (!labels.empty()) {
      const int64_t label = labels[static_cast<size_t>(random.below(static_cast<int64_t>(labels.size())))];
      const uint64_t pick = (uint64_t{random.bits()} << 32) | random.bits();
      Extent3 voxel;
      if (setup_.source->foreground_voxel(index, label, pick, &voxel))
        return {index, place_about(voxel, patch, volume)};
    }
    return {index, place_uniformly(patch, volume, random)};
  }
  int64_t samples_per_pass() const override { return samples_per_visit_pass(setup_); }

 private:
  SamplerSetup setup_;
};

}  // namespace

SamplerEntry balanced_sampler() {
  return {
      "balanced", "each label is equally often at the centre",
      [](const SamplerSetup& setup) -> std::unique_ptr<Sampler> { return std::make_unique<BalancedSampler>(setup); }};
}

}  // namespace vox
