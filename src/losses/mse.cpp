// Mean squared error over the voxels that count.
#include <torch/torch.h>

#include "losses/entry.h"

namespace vox {
namespace {

class Mse : public Loss {
 public:
  struct Options {
    void describe(Visitor&) {}
  };
  Mse(const Options&, const LossContext&) {}

  at::Tensor compute(const LossInput& input) const override {
    return mean_of_valid((input.logits - input.target).square(), input.valid);
  }
  bool batch_wise(bool partial) const override { return partial; }
  std::optional<FusedTerm> fused() const override { return FusedTerm{.kind = FusedTerm::Kind::kMse}; }
};

}  // namespace

LossEntry mse_entry() {
  return loss_entry<Mse>("mse", "Mean squared error over the voxels that count", true);
}

}  // namespace vox
