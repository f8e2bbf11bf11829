// Patches about the middle of what the case's mask marks: whole where the patch can hold it, and moved by augmentation
// alone. Where nothing is marked, every place is equally likely.
#include "patch/placement.h"

namespace vox {
namespace {

Extent3 place_on_mask(const SamplerSetup& setup, int64_t case_index, Random& random) {
  const std::optional<Box3> box = setup.source->marked_box(case_index);
  if (!box) return place_uniformly(setup, case_index, random);
  Extent3 centre;
  for (int axis = 0; axis < 3; ++axis) centre[axis] = (box->begin[axis] + box->end[axis]) / 2;
  return place_about(centre, setup.data.patch_size, setup.source->extent(case_index));
}

}  // namespace

SamplerEntry mask_sampler() {
  return {"mask", "centred on what the mask marks", VisitingSampler<place_on_mask>::make};
}

}  // namespace vox
