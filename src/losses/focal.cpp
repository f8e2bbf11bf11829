// Focal loss (Lin et al. 2017): cross entropy times (1 - p of the truth)^gamma, so that easy voxels count less.
#include <torch/torch.h>

#include "losses/entry.h"

namespace vox {
namespace {

// At 0 the power of a gamma below 1 has no slope: a voxel that is certain has that of the least uncertain one.
at::Tensor uncertainty(const at::Tensor& rest) {
  return rest.clamp_min(1e-30);
}

class Focal : public Loss {
 public:
  struct Options {
    double gamma = 2, alpha = -1;
    void describe(Visitor& v) {
      v.field("gamma", gamma, {.meaning = "How much less easy voxels count; 0 is cross entropy", .min = 0, .max = 100});
      v.field("alpha", alpha,
              {.meaning = "Share of the foreground for one channel; -1 weighs both alike", .min = -1, .max = 1});
    }
  };
  Focal(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    if (input.classes.defined()) {
      const at::Tensor log_p = input.logits.log_softmax(1).gather(1, input.classes.unsqueeze(1));
      return mean_of_valid(log_p.neg() * uncertainty(1 - log_p.exp()).pow(options_.gamma), input.valid);
    }
    const at::Tensor toward_truth = input.logits * (2 * input.target - 1);
    at::Tensor values =
        at::log_sigmoid(toward_truth).neg() * uncertainty(toward_truth.neg().sigmoid()).pow(options_.gamma);
    if (options_.alpha >= 0)
      values = values * (options_.alpha * input.target + (1 - options_.alpha) * (1 - input.target));
    return mean_of_valid(values, input.valid);
  }
  bool batch_wise(bool partial) const override { return partial; }

 private:
  Options options_;
};

}  // namespace

LossEntry focal_entry() {
  return loss_entry<Focal>("focal", "Cross entropy in which easy voxels count less");
}

}  // namespace vox
