// Every place inside the volume is equally likely.
#include "patch/placement.h"

namespace vox {
namespace {

class UniformSampler : public Sampler {
 public:
  explicit UniformSampler(const SamplerSetup& setup) : setup_(setup) {}
  PatchChoice choose(uint64_t seed, int64_t sample) const override {
    const int64_t index = visited_case(setup_, seed, sample);
    Random random = patch_random(seed, sample);
    return {index, place_uniformly(setup_.data.patch_size, setup_.source->extent(index), random)};
  }
  int64_t samples_per_pass() const override { return samples_per_visit_pass(setup_); }

 private:
  SamplerSetup setup_;
};

}  // namespace

SamplerEntry uniform_sampler() {
  return {"uniform", "every place is equally likely", [](const SamplerSetup& setup) -> std::unique_ptr<Sampler> {
            return std::make_unique<UniformSampler>(setup);
          }};
}

}  // namespace vox
