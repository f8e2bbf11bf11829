// Soft Dice loss (Milletari et al. 2016, without squares): 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth), the
// mean over samples and channels; probabilities by sigmoid for one channel, softmax for several.
#include <torch/torch.h>

#include "losses/entry.h"

namespace vox {
namespace {

class Dice : public Loss {
 public:
  struct Options {
    bool batch = false, background = false;
    double smooth = 1e-5;
    void describe(Visitor& v) {
      v.field("batch", batch, {.meaning = "Sums over the whole batch instead of each sample"});
      v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
      v.field("smooth", smooth, {.meaning = "Added above and below the line", .min = 0, .above_min = true});
    }
  };
  Dice(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [p, t] = regions_of(input, options_.background);
    std::vector<int64_t> summed{2, 3, 4};
    if (options_.batch) summed.insert(summed.begin(), 0);
    const at::Tensor both = (p * t).sum(summed), either = p.sum(summed) + t.sum(summed);
    return (1 - (2 * both + options_.smooth) / (either + options_.smooth)).mean();
  }
  bool batch_wise(bool) const override { return options_.batch; }

 private:
  Options options_;
};

}  // namespace

LossEntry dice_entry() {
  return loss_entry<Dice>("dice", "Soft Dice, per sample or over the batch");
}

}  // namespace vox
