#include <torch/torch.h>

#include "losses/entry.h"

namespace vox {

void RegionOptions::describe(Visitor& v) {
  v.field("batch", batch, {.meaning = "Sums over the whole batch instead of each sample"});
  v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
  v.field("smooth", smooth, {.meaning = "Added above and below the line", .min = 0, .above_min = true});
}

std::vector<int64_t> RegionOptions::summed() const {
  return batch ? std::vector<int64_t>{0, 2, 3, 4} : std::vector<int64_t>{2, 3, 4};
}

Regions regions_of(const LossInput& input, bool background) {
  const int64_t channels = input.logits.size(1);
  const bool classes = input.classes.defined();  // of which a voxel has one
  Regions regions{classes ? input.logits.softmax(1) : input.logits.sigmoid(), input.target};
  if (classes && !background) {
    regions.probability = regions.probability.narrow(1, 1, channels - 1);
    regions.target = regions.target.narrow(1, 1, channels - 1);
  }
  if (input.valid.defined()) {
    regions.probability = regions.probability * input.valid;
    regions.target = regions.target * input.valid;
  }
  return regions;
}

at::Tensor mean_of_valid(const at::Tensor& values, const at::Tensor& valid) {
  if (!valid.defined()) return values.mean();
  const double channels = static_cast<double>(values.size(1)) / static_cast<double>(valid.size(1));
  const at::Tensor counted = valid.sum() * channels;
  // A sum of weights may be any positive number: only an exact zero is replaced.
  return (values * valid).sum() / at::where(counted > 0, counted, at::ones_like(counted));
}

}  // namespace vox
