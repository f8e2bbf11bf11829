// Soft Dice loss (Milletari et al. 2016, without squares): 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth), the
// mean over samples and channels; probabilities by sigmoid for one channel, softmax for several.
#include <torch/torch.h>

#include "base/error.h"
#include "config/params.h"
#include "losses/loss.h"

namespace vox {
namespace {

struct DiceOptions {
  bool batch = false;
  bool background = false;
  double smooth = 1e-5;
  void describe(Visitor& v) {
    v.field("batch", batch, {.meaning = "Sums over the whole batch instead of each sample"});
    v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
    v.field("smooth", smooth, {.meaning = "Added above and below the line", .min = 0, .above_min = true});
  }
};

class Dice : public Loss {
 public:
  Dice(const DiceOptions& options, int64_t channels) : options_(options), channels_(channels) {}

  at::Tensor compute(const LossInput& input) const override {
    at::Tensor probability = channels_ == 1 ? input.logits.sigmoid() : input.logits.softmax(1);
    at::Tensor target = input.target;
    if (channels_ > 1 && !options_.background) {
      probability = probability.narrow(1, 1, channels_ - 1);
      target = target.narrow(1, 1, channels_ - 1);
    }
    if (input.valid.defined()) {
      probability = probability * input.valid;
      target = target * input.valid;
    }
    std::vector<int64_t> summed{2, 3, 4};
    if (options_.batch) summed.insert(summed.begin(), 0);
    const at::Tensor both = (probability * target).sum(summed);
    const at::Tensor either = probability.sum(summed) + target.sum(summed);
    return (1 - (2 * both + options_.smooth) / (either + options_.smooth)).mean();
  }
  bool batch_wise(bool) const override { return options_.batch; }

 private:
  DiceOptions options_;
  int64_t channels_;
};

}  // namespace

LossEntry dice_entry() {
  LossEntry entry{.name = "dice", .help = "Soft Dice, per sample or over the batch"};
  entry.make = [](const Tree& params, const LossContext& context) -> std::unique_ptr<Loss> {
    return std::make_unique<Dice>(parse_params<DiceOptions>(params, "loss.terms: dice"), context.out_channels);
  };
  return entry;
}

}  // namespace vox
