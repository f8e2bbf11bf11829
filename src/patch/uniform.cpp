// Every place inside the volume is equally likely.
#include "patch/placement.h"

namespace vox {

SamplerEntry uniform_sampler() {
  return {"uniform", "every place is equally likely", VisitingSampler<place_uniformly>::make};
}

}  // namespace vox
