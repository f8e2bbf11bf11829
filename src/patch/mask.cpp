// Patches on what the case's mask marks: about its middle where the patch can hold it, moved by augmentation alone;
// where it is longer than the patch, about any place of it, moved inside, so that its ends are seen too. Where nothing
// is marked, every place is equally likely.
#include <algorithm>

#include "patch/placement.h"

namespace vox {
namespace {

int64_t middle_of_patch(int64_t begin, int64_t end, int64_t patch, Random& random) {
  if (end - begin <= patch) return (begin + end) / 2;
  return std::clamp(begin + random.below(end - begin), begin + patch / 2, end - patch + patch / 2);
}

Extent3 place_on_mask(const SamplerSetup& setup, int64_t case_index, Random& random) {
  const std::optional<Box3> box = setup.source->marked_box(case_index);
  if (!box) return place_uniformly(setup, case_index, random);
  Extent3 centre;
  for (int axis = 0; axis < 3; ++axis)
    centre[axis] = middle_of_patch(box->begin[axis], box->end[axis], setup.data.patch_size[axis], random);
  return place_about(centre, setup.data.patch_size, setup.source->extent(case_index));
}

}  // namespace

SamplerEntry mask_sampler() {
  return {"mask", "about the middle of what the mask marks; anywhere on it where the patch is smaller",
          VisitingSampler<place_on_mask>::make};
}

}  // namespace vox
