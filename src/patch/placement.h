// What the samplers share: which case a sample visits, and where a patch may begin.
#pragma once

#include <optional>
#include <vector>

#include "base/random.h"
#include "patch/sampler.h"

namespace vox {

// Place of `index` in a shuffle of 0 .. count-1 that `random` keys: a swap-or-not network (Hoang, Morris and Rogaway
// 2012), a permutation for any count that is computed one element at a time.
int64_t shuffled(int64_t index, int64_t count, const Random& random);

// The case that a sample is cut from: runs of data.patches_per_case samples visit one case, and each pass over the
// cases visits every one once, in an order of its own.
int64_t visited_case(const SamplerSetup& setup, uint64_t seed, int64_t sample);
int64_t samples_per_visit_pass(const SamplerSetup& setup);

// Begin of a patch about `centre`, moved so that it lies inside the volume; centred where it is larger.
Extent3 place_about(const Extent3& centre, const Extent3& patch, const Extent3& volume);

// Any place inside the case's volume, each equally likely; centred where the patch is larger.
Extent3 place_uniformly(const SamplerSetup& setup, int64_t case_index, Random& random);

// Begin of a patch centred on a voxel of one of `labels`, each equally likely; none where there is no such voxel.
std::optional<Extent3> place_on_label(const SamplerSetup& setup, int64_t case_index, const std::vector<int64_t>& labels,
                                      Random& random);

// A sampler that visits the cases in turn; `place` says where in the visited case a patch begins.
using PlaceInCase = Extent3 (*)(const SamplerSetup& setup, int64_t case_index, Random& random);
template <PlaceInCase place>
class VisitingSampler : public Sampler {
 public:
  explicit VisitingSampler(const SamplerSetup& setup) : setup_(setup) {}
  PatchChoice choose(uint64_t seed, int64_t sample) const override {
    const int64_t index = visited_case(setup_, seed, sample);
    Random random(seed, static_cast<uint64_t>(sample), kPatchStream);
    return {index, place(setup_, index, random)};
  }
  int64_t samples_per_pass() const override { return samples_per_visit_pass(setup_); }
  static std::unique_ptr<Sampler> make(const SamplerSetup& setup) { return std::make_unique<VisitingSampler>(setup); }

 private:
  SamplerSetup setup_;
};

}  // namespace vox
