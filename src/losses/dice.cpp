// Soft Dice loss (Milletari et al. 2016, without squares): 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth), the
// mean over samples and channels; probabilities by softmax for classes, by sigmoid for one channel and for targets with
// a volume for each.
#include <torch/torch.h>

#include "losses/entry.h"

namespace vox {
namespace {

class Dice : public Loss {
 public:
  using Options = RegionOptions;
  Dice(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [p, t] = regions_of(input, options_.background);
    const std::vector<int64_t> summed = options_.summed();
    const at::Tensor both = (p * t).sum(summed), either = p.sum(summed) + t.sum(summed);
    return (1 - (2 * both + options_.smooth) / (either + options_.smooth)).mean();
  }
  bool batch_wise(bool) const override { return options_.batch; }
  std::optional<FusedTerm> fused() const override {  // Tversky's with equal prices, above and below halved
    return FusedTerm{.kind = FusedTerm::Kind::kRegion,
                     .batch = options_.batch,
                     .background = options_.background,
                     .smooth = options_.smooth / 2,
                     .alpha = 0.5,
                     .beta = 0.5};
  }

 private:
  Options options_;
};

}  // namespace

LossEntry dice_entry() {
  return loss_entry<Dice>("dice", "Soft Dice, per sample or over the batch");
}

}  // namespace vox
