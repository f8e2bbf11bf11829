// Mean absolute error over the voxels of the mask.
#include <torch/torch.h>

#include "base/error.h"
#include "config/params.h"
#include "losses/loss.h"

namespace vox {
namespace {

struct MaskedMaeOptions {
  void describe(Visitor&) {}
};

class MaskedMae : public Loss {
 public:
  at::Tensor compute(const LossInput& input) const override {
    VOX_CHECK(input.valid.defined(), "loss.terms: masked_mae needs a mask; set data.mask, or use mae");
    return mean_of_valid((input.logits - input.target).abs(), input.valid);
  }
  bool batch_wise(bool) const override { return true; }
};

}  // namespace

LossEntry masked_mae_entry() {
  LossEntry entry{.name = "masked_mae", .help = "Mean absolute error over the voxels of the mask", .regression = true};
  entry.make = [](const Tree& params, const LossContext&) -> std::unique_ptr<Loss> {
    parse_params<MaskedMaeOptions>(params, "loss.terms: masked_mae");
    return std::make_unique<MaskedMae>();
  };
  return entry;
}

}  // namespace vox
