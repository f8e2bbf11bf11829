// Each label that a case has is equally often at the centre, background included. Background needs no list of voxels:
// a uniform patch shows it.
#include "patch/placement.h"

namespace vox {
namespace {

Extent3 place_balanced(const SamplerSetup& setup, int64_t case_index, Random& random) {
  const auto begin = place_on_label(setup, case_index, setup.source->labels_present(case_index), random);
  return begin ? *begin : place_uniformly(setup, case_index, random);
}

}  // namespace

SamplerEntry balanced_sampler() {
  return {"balanced", "each label is equally often at the centre", VisitingSampler<place_balanced>::make};
}

}  // namespace vox
