// Mean absolute error over every voxel, masked or not, whose target is known.
#include <torch/torch.h>

#include "config/params.h"
#include "losses/loss.h"

namespace vox {
namespace {

struct MaeOptions {
  void describe(Visitor&) {}
};

class Mae : public Loss {
 public:
  at::Tensor compute(const LossInput& input) const override {
    return mean_of_valid((input.logits - input.target).abs(), input.known);
  }
  bool batch_wise(bool) const override { return false; }
  std::optional<FusedTerm> fused() const override { return FusedTerm{.kind = FusedTerm::Kind::kMae}; }
};

}  // namespace

LossEntry mae_entry() {
  LossEntry entry{.name = "mae", .help = "Mean absolute error over every voxel", .regression = true};
  entry.uses_valid = false;
  entry.make = [](const Tree& params, const LossContext&) -> std::unique_ptr<Loss> {
    parse_params<MaeOptions>(params, "loss.terms: mae");
    return std::make_unique<Mae>();
  };
  entry.options = rows_of<MaeOptions>;
  return entry;
}

}  // namespace vox
