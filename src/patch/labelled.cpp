// Uniform places, tried in turn until one has at least data.minimum_labelled of its voxels labelled (not the ignore
// label; padding counts as unlabelled). Where none of them has, the best of them is taken.
#include "patch/placement.h"

namespace vox {
namespace {

constexpr int kTries = 10;

class LabelledSampler : public Sampler {
 public:
  explicit LabelledSampler(const SamplerSetup& setup) : setup_(setup) {}
  PatchChoice choose(uint64_t seed, int64_t sample) const override {
    const int64_t index = visited_case(setup_, seed, sample);
    const Extent3 volume = setup_.source->extent(index), patch = setup_.data.patch_size;
    const double wanted = setup_.data.minimum_labelled * static_cast<double>(patch.voxels());
    Random random = patch_random(seed, sample);
    PatchChoice best{index, {}};
    int64_t most = -1;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const Extent3 begin = place_uniformly(patch, volume, random);
      const int64_t labelled = setup_.source->labelled_voxels(index, intersect({begin, begin + patch}, whole(volume)));
      if (labelled > most) {
        most = labelled;
        best.begin = begin;
      }
      if (static_cast<double>(labelled) >= wanted) break;
    }
    return best;
  }
  int64_t samples_per_pass() const override { return samples_per_visit_pass(setup_); }

 private:
  SamplerSetup setup_;
};

}  // namespace

SamplerEntry labelled_sampler() {
  return {
      "labelled", "uniform, with a minimum labelled fraction",
      [](const SamplerSetup& setup) -> std::unique_ptr<Sampler> { return std::make_unique<LabelledSampler>(setup); }};
}

}  // namespace vox
