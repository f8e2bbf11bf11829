// Tversky loss (Salehi et al. 2017): Dice with separate prices for false positives and false negatives.
#include <torch/torch.h>

#include "losses/entry.h"

namespace vox {
namespace {

class Tversky : public Loss {
 public:
  struct Options : RegionOptions {
    double alpha = 0.5, beta = 0.5;
    void describe(Visitor& v) {
      v.field("alpha", alpha, {.meaning = "Price of a false positive", .min = 0, .max = 100});
      v.field("beta", beta, {.meaning = "Price of a false negative", .min = 0, .max = 100});
      RegionOptions::describe(v);
    }
  };
  Tversky(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [p, t] = regions_of(input, options_.background);
    const std::vector<int64_t> summed = options_.summed();
    const at::Tensor both = (p * t).sum(summed);
    const at::Tensor false_positives = p.sum(summed) - both, false_negatives = t.sum(summed) - both;
    const at::Tensor below = both + options_.alpha * false_positives + options_.beta * false_negatives;
    return (1 - (both + options_.smooth) / (below + options_.smooth)).mean();
  }
  bool batch_wise(bool) const override { return options_.batch; }
  std::optional<FusedTerm> fused() const override {
    return FusedTerm{.kind = FusedTerm::Kind::kRegion,
                     .batch = options_.batch,
                     .background = options_.background,
                     .smooth = options_.smooth,
                     .alpha = options_.alpha,
                     .beta = options_.beta};
  }

 private:
  Options options_;
};

}  // namespace

LossEntry tversky_entry() {
  return loss_entry<Tversky>("tversky", "Dice with separate prices for false positives and false negatives");
}

}  // namespace vox
