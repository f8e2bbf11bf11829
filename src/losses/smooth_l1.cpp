// Smooth L1 (Huber) loss: squares for differences below beta, absolute values beyond.
#include <torch/torch.h>

#include "losses/entry.h"

namespace vox {
namespace {

class SmoothL1 : public Loss {
 public:
  struct Options {
    double beta = 1;
    bool tanh = false;
    void describe(Visitor& v) {
      v.field("beta", beta, {.meaning = "Where squares become absolute values", .min = 0, .above_min = true});
      v.field("tanh", tanh, {.meaning = "Of the prediction's hyperbolic tangent, for targets within -1 and 1"});
    }
  };
  SmoothL1(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const at::Tensor predicted = options_.tanh ? input.logits.tanh() : input.logits;
    return mean_of_valid(at::smooth_l1_loss(predicted, input.target, at::Reduction::None, options_.beta), input.valid);
  }
  bool batch_wise(bool partial) const override { return partial; }
  bool takes_tanh() const override { return options_.tanh; }

 private:
  Options options_;
};

}  // namespace

LossEntry smooth_l1_entry() {
  return loss_entry<SmoothL1>("smooth_l1", "Squares for small differences, absolute values for large ones", true);
}

}  // namespace vox
