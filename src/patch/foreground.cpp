// A fraction of the patches (data.foreground_fraction) is centred on a voxel of a label that the case has, each label
// equally likely; the rest is uniform, and so is every patch of a case without foreground.
#include "patch/placement.h"

namespace vox {
namespace {

Extent3 place_on_foreground(const SamplerSetup& setup, int64_t case_index, Random& random) {
  if (random.chance(setup.data.foreground_fraction)) {
    if (const auto begin = place_on_label(setup, case_index, setup.source->foreground_labels(case_index), random))
      return *begin;
  }
  return place_uniformly(setup, case_index, random);
}

}  // namespace

SamplerEntry foreground_sampler() {
  return {"foreground", "a fraction of the patches is centred on foreground",
          VisitingSampler<place_on_foreground>::make};
}

}  // namespace vox
