// Mean absolute error over the voxels of the mask; high values of the target may weigh more.
#include <torch/torch.h>

#include "base/error.h"
#include "losses/entry.h"

namespace vox {
namespace {

class MaskedMae : public Loss {
 public:
  struct Options {
    double target_weight = 0;
    void describe(Visitor& v) {
      v.field("target_weight", target_weight,
              {.meaning = "A voxel of target t weighs 1 + this * |t|; 0 weighs all alike", .min = 0, .max = 1e9});
    }
  };
  MaskedMae(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    VOX_CHECK(input.valid.defined(), "loss.terms: masked_mae needs a mask; set data.mask, or use mae");
    const at::Tensor values = (input.logits - input.target).abs();
    if (options_.target_weight == 0) return mean_of_valid(values, input.valid);
    return mean_of_valid(values, (1 + options_.target_weight * input.target.abs()) * input.valid);
  }
  bool batch_wise(bool) const override { return true; }
  std::optional<FusedTerm> fused() const override {
    return FusedTerm{.kind = FusedTerm::Kind::kMaskedMae, .target_weight = options_.target_weight};
  }

 private:
  Options options_;
};

}  // namespace

LossEntry masked_mae_entry() {
  return loss_entry<MaskedMae>("masked_mae", "Mean absolute error over the voxels of the mask", true);
}

}  // namespace vox
