// A fraction of the patches (data.foreground_fraction) is centred on a voxel of a label that the case has, each label
// equally likely; the rest is uniform, and so is every patch of a case without foreground.
#include "patch/placement.h"

namespace vox {
namespace {

class ForegroundSampler : public Sampler {
 public:
  explicit ForegroundSampler(const SamplerSetup& setup) : setup_(setup) {}
  PatchChoice choose(uint64_t seed, int64_t sample) const override {
    const int64_t index = visited_case(setup_, seed, sample);
    Random random = patch_random(seed, sample);
    if (random.chance(setup_.data.foreground_fraction)) {
      if (const auto begin = place_on_label(setup_, index, setup_.source->foreground_labels(index), random))
        return {index, *begin};
    }
    return {index, place_uniformly(setup_.data.patch_size, setup_.source->extent(index), random)};
  }
  int64_t samples_per_pass() const override { return samples_per_visit_pass(setup_); }

 private:
  SamplerSetup setup_;
};

}  // namespace

SamplerEntry foreground_sampler() {
  return {
      "foreground", "a fraction of the patches is centred on foreground",
      [](const SamplerSetup& setup) -> std::unique_ptr<Sampler> { return std::make_unique<ForegroundSampler>(setup); }};
}

}  // namespace vox
