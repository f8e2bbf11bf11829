// Uniform places, tried in turn until one has at least data.minimum_labelled of its voxels labelled (not the ignore
// label; padding counts as unlabelled). Where none of them has, the best of them is taken.
#include "patch/placement.h"

namespace vox {
namespace {

constexpr int kTries = 10;

Extent3 place_labelled(const SamplerSetup& setup, int64_t case_index, Random& random) {
  const Extent3 volume = setup.source->extent(case_index), patch = setup.data.patch_size;
  const double wanted = setup.data.minimum_labelled * static_cast<double>(patch.voxels());
  Extent3 best;
  int64_t most = -1;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const Extent3 begin = place_uniformly(setup, case_index, random);
    const int64_t labelled =
        setup.source->labelled_voxels(case_index, intersect({begin, begin + patch}, whole(volume)));
    if (labelled > most) {
      most = labelled;
      best = begin;
    }
    if (static_cast<double>(labelled) >= wanted) break;
  }
  return best;
}

}  // namespace

SamplerEntry labelled_sampler() {
  return {"labelled", "uniform, with a minimum labelled fraction", VisitingSampler<place_labelled>::make};
}

}  // namespace vox
