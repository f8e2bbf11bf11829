// Dose-volume histogram loss for dose: in each structure both doses are sorted, and the two sorted lists compared, so
// that what counts is how much of the structure gets how much, not where. Structures are masks among the channels of
// the image.
#include <torch/torch.h>

#include "base/error.h"
#include "losses/entry.h"

namespace vox {
namespace {

class Dvh : public Loss {
 public:
  struct Options {
    std::vector<int64_t> structures;
    void describe(Visitor& v) {
      v.field("structures", structures,
              {.meaning = "Channels of the image that are masks of structures; empty compares the whole mask",
               .min = 0,
               .max = 65535});
    }
  };
  Dvh(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    at::Tensor sum = input.logits.sum() * 0;
    int64_t compared = 0;
    for (int64_t n = 0; n < input.logits.size(0); ++n) {
      for (const at::Tensor& region : regions(input, n)) {
        if (region.numel() == 0) continue;
        const at::Tensor predicted = input.logits[n][0].flatten().index_select(0, region);
        const at::Tensor wanted = input.target[n][0].flatten().index_select(0, region);
        sum = sum + (std::get<0>(predicted.sort()) - std::get<0>(wanted.sort())).abs().mean();
        ++compared;
      }
    }
    return sum / static_cast<double>(std::max<int64_t>(1, compared));
  }
  bool batch_wise(bool) const override { return true; }  // a mean over the structures that are there
  bool reads_back() const override { return true; }
  bool reads_image() const override { return !options_.structures.empty(); }

 private:
  // Places of the voxels of each structure of a sample.
  std::vector<at::Tensor> regions(const LossInput& input, int64_t sample) const {
    at::Tensor counted = input.valid.defined()
                             ? input.valid[sample][0].flatten() > 0
                             : at::ones({input.logits[sample][0].numel()}, input.logits.options().dtype(at::kBool));
    if (options_.structures.empty()) return {counted.nonzero().squeeze(1)};
    VOX_CHECK(input.image.defined(), "loss.terms: dvh cannot see the structures: they are channels of the image");
    std::vector<at::Tensor> places;
    for (const int64_t channel : options_.structures) {
      VOX_CHECK(channel < input.image.size(1), "loss.terms: dvh: structure ", channel, " but the image has ",
                input.image.size(1), " channels");
      places.push_back((counted & (input.image[sample][channel].flatten() > 0.5)).nonzero().squeeze(1));
    }
    return places;
  }

  Options options_;
};

}  // namespace

LossEntry dvh_entry() {
  return loss_entry<Dvh>("dvh", "Difference of the dose-volume histograms of structures", true);
}

}  // namespace vox
