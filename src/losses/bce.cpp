// Binary cross entropy of logits, each channel on its own.
#include <torch/torch.h>

#include "base/error.h"
#include "config/params.h"
#include "losses/loss.h"

namespace vox {
namespace {

struct BceOptions {
  double pos_weight = 1;
  std::vector<double> class_weights;
  void describe(Visitor& v) {
    v.field("pos_weight", pos_weight, {.meaning = "Factor of the foreground's part", .min = 0});
    v.field("class_weights", class_weights, {.meaning = "Factor of each channel; empty is 1", .min = 0});
  }
};

class Bce : public Loss {
 public:
  explicit Bce(const BceOptions& options) : options_(options), class_weights_(options.class_weights) {}

  at::Tensor compute(const LossInput& input) const override {
    // log(1 + exp(-x)) once, with the foreground's part weighted: stable at any logit.
    const at::Tensor &x = input.logits, &t = input.target;
    at::Tensor values;
    if (options_.pos_weight == 1) {
      values = at::binary_cross_entropy_with_logits(x, t, {}, {}, at::Reduction::None);
    } else {
      const at::Tensor softplus = at::log_sigmoid(x).neg();
      values = (1 - t) * x + (1 + (options_.pos_weight - 1) * t) * softplus;
    }
    if (!class_weights_.empty()) {
      values = values * class_weights_.like(values).view({1, -1, 1, 1, 1});
    }
    return mean_of_valid(values, input.valid);
  }
  bool batch_wise(bool partial) const override { return partial; }
  std::optional<FusedTerm> fused() const override {
    return FusedTerm{
        .kind = FusedTerm::Kind::kBce, .pos_weight = options_.pos_weight, .class_weights = options_.class_weights};
  }

 private:
  BceOptions options_;
  Constants class_weights_;
};

}  // namespace

LossEntry bce_entry() {
  LossEntry entry{.name = "bce", .help = "Binary cross entropy of each channel", .softmax = false};
  entry.make = [](const Tree& params, const LossContext& context) -> std::unique_ptr<Loss> {
    const auto options = parse_params<BceOptions>(params, "loss.terms: bce");
    const size_t given = options.class_weights.size();
    VOX_CHECK(given == 0 || static_cast<int64_t>(given) == context.out_channels, "loss.terms: bce: class_weights has ",
              given, " entries but the network has ", context.out_channels, " channels");
    return std::make_unique<Bce>(options);
  };
  entry.options = rows_of<BceOptions>;
  return entry;
}

}  // namespace vox
