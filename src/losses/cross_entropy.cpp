// Cross entropy of a softmax over the channels; with class weights the mean is weighted too, as torch's is.
#include <torch/torch.h>

#include "base/error.h"
#include "config/params.h"
#include "losses/loss.h"

namespace vox {
namespace {

struct CrossEntropyOptions {
  std::vector<double> class_weights;
  void describe(Visitor& v) {
    v.field("class_weights", class_weights, {.meaning = "Factor of each class; empty is 1", .min = 0});
  }
};

class CrossEntropy : public Loss {
 public:
  explicit CrossEntropy(const CrossEntropyOptions& options)
      : options_(options), class_weights_(options.class_weights) {}

  at::Tensor compute(const LossInput& input) const override {
    VOX_CHECK(
        input.classes.defined(),
        "loss.terms: cross_entropy is for classes, of which a voxel has one, but its target has a volume for each "
        "channel; use bce, focal or dice");
    const at::Tensor index = input.classes.unsqueeze(1);
    const at::Tensor values = input.logits.log_softmax(1).gather(1, index).neg();
    if (class_weights_.empty()) return mean_of_valid(values, input.valid);
    const at::Tensor weights = class_weights_.like(values).index({input.classes}).unsqueeze(1);
    return mean_of_valid(values, input.valid.defined() ? weights * input.valid : weights);
  }
  bool batch_wise(bool partial) const override { return partial || !class_weights_.empty(); }
  std::optional<FusedTerm> fused() const override {
    return FusedTerm{.kind = FusedTerm::Kind::kCrossEntropy, .class_weights = options_.class_weights};
  }

 private:
  CrossEntropyOptions options_;
  Constants class_weights_;
};

}  // namespace

LossEntry cross_entropy_entry() {
  LossEntry entry{
      .name = "cross_entropy", .help = "Cross entropy of a softmax over two channels or more", .needs_classes = true};
  entry.make = [](const Tree& params, const LossContext& context) -> std::unique_ptr<Loss> {
    VOX_CHECK(context.out_channels > 1,
              "loss.terms: cross_entropy needs two channels or more; with model.out_channels 1 use bce");
    const auto options = parse_params<CrossEntropyOptions>(params, "loss.terms: cross_entropy");
    const size_t given = options.class_weights.size();
    VOX_CHECK(given == 0 || static_cast<int64_t>(given) == context.out_channels,
              "loss.terms: cross_entropy: class_weights has ", given, " entries but the network has ",
              context.out_channels, " channels");
    return std::make_unique<CrossEntropy>(options);
  };
  entry.options = rows_of<CrossEntropyOptions>;
  return entry;
}

}  // namespace vox
