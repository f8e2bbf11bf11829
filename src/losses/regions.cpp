#include <torch/torch.h>

#include "losses/entry.h"

namespace vox {

Regions regions_of(const LossInput& input, bool background) {
  const int64_t channels = input.logits.size(1);
  Regions regions{channels == 1 ? input.logits.sigmoid() : input.logits.softmax(1), input.target};
  if (channels > 1 && !background) {
    regions.probability = regions.probability.narrow(1, 1, channels - 1);
    if (regions.target.size(1) == channels) regions.target = regions.target.narrow(1, 1, channels - 1);
  }
  if (input.valid.defined()) {
    regions.probability = regions.probability * input.valid;
    regions.target = regions.target * input.valid;
  }
  return regions;
}

}  // namespace vox
