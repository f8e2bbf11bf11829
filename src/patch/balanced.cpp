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
    Random random = patch_random(seed, sample);
    if (const auto begin = place_on_label(setup_, index, setup_.source->labels_present(index), random))
      return {index, *begin};
    return {index, place_uniformly(setup_.data.patch_size, setup_.source->extent(index), random)};
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
