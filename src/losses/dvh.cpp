// Dose-volume histogram loss for dose: in each structure both doses are sorted, and the two sorted lists compared, so
// that what counts is how much of the structure gets how much, not where. Structures are masks among the channels of
// the image. A plan is judged by the ends of such a list (D99, D95, D1, the hottest 0.1 cc): `tails` weighs them.
#include <torch/torch.h>

#include "base/error.h"
#include "losses/entry.h"

namespace vox {
namespace {

class Dvh : public Loss {
 public:
  struct Options {
    std::vector<int64_t> structures;
    double tails = 0;
    void describe(Visitor& v) {
      v.field("structures", structures,
              {.meaning = "Channels of the image that are masks of structures; empty compares the whole mask",
               .min = 0,
               .max = 65535});
      v.field("tails", tails,
              {.meaning = "Weight of the mean over the coldest and of that over the hottest twentieth of a structure, "
                          "beside the mean over all of it",
               .min = 0,
               .max = 1000});
    }
  };
  Dvh(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const Structures found = structures_of(input);
    if (found.chosen.size(0) == 0) return input.logits.sum() * 0;
    const at::Tensor apart = sorted_inside(found, input.logits) - sorted_inside(found, input.target);
    return (apart.abs() * weights(found)).sum();
  }
  bool batch_wise(bool) const override { return true; }  // a mean over the structures that are there
  bool reads_back() const override { return true; }
  bool reads_image() const override { return !options_.structures.empty(); }

 private:
  // The voxels of every structure of every sample, one structure after the other.
  struct Structures {
    at::Tensor counted;  // places in [N, Z, Y, X] of voxels that count
    int64_t repeated;    // structures that each of these may lie in
    at::Tensor chosen;   // places in [repeated, counted] of those that do
    at::Tensor number;   // of the structure of each of these
    at::Tensor voxels;   // of each structure
  };

  Structures structures_of(const LossInput& input) const {
    const int64_t samples = input.logits.size(0), volume = input.logits[0][0].numel();
    Structures found;
    found.counted = input.valid.defined() ? input.valid.select(1, 0).flatten().nonzero().squeeze(1)
                                          : at::arange(samples * volume, input.logits.options().dtype(at::kLong));
    const at::Tensor sample = found.counted.div(volume, "floor");
    const at::Tensor inside = inside_of(input, sample, found.counted.remainder(volume));
    found.repeated = inside.size(0);
    found.chosen = inside.flatten().nonzero().squeeze(1);
    if (found.chosen.size(0) == 0) return found;
    const at::Tensor structure = found.chosen.div(inside.size(1), "floor");
    found.number = structure * samples + sample.index_select(0, found.chosen.remainder(inside.size(1)));
    found.voxels = at::zeros({found.repeated * samples}, found.number.options())
                       .scatter_add_(0, found.number, at::ones_like(found.number));
    return found;
  }

  // [structures, voxels that count]
  at::Tensor inside_of(const LossInput& input, const at::Tensor& sample, const at::Tensor& voxel) const {
    if (options_.structures.empty()) return at::ones({1, sample.size(0)}, sample.options().dtype(at::kBool));
    VOX_CHECK(input.image.defined(), "loss.terms: dvh cannot see the structures: they are channels of the image");
    for (const int64_t channel : options_.structures)
      VOX_CHECK(channel < input.image.size(1), "loss.terms: dvh: structure ", channel, " but the image has ",
                input.image.size(1), " channels");
    const at::Tensor channel = at::tensor(options_.structures).to(sample.device()).unsqueeze(1);
    return input.image.flatten(2).index({sample, channel, voxel}) > 0.5;
  }

  // All structures by one sort: each has a range of keys of its own. Voxels are repeated before they are chosen, so
  // that what flows back to one that lies in several is added in the same order every time.
  static at::Tensor sorted_inside(const Structures& found, const at::Tensor& doses) {
    const at::Tensor counted = doses.select(1, 0).flatten().index_select(0, found.counted);
    const at::Tensor values = counted.expand({found.repeated, -1}).flatten().index_select(0, found.chosen);
    const at::Tensor exact = values.detach().to(at::kDouble), least = exact.min(), range = exact.max() - least + 1;
    return values.index_select(0, (exact - least + found.number * range).argsort());
  }

  // What a difference counts for, by its rank: the mean over the structures of means over all voxels and over the ends.
  at::Tensor weights(const Structures& found) const {
    const at::Tensor there = (found.voxels > 0).sum(), voxels = found.voxels.index_select(0, found.number);
    const at::Tensor all = (voxels * there).to(at::kDouble).reciprocal();
    if (options_.tails == 0) return all.to(at::kFloat);
    const at::Tensor first = (found.voxels.cumsum(0) - found.voxels).index_select(0, found.number);
    const at::Tensor rank = at::arange(voxels.size(0), voxels.options()) - first;
    const at::Tensor few = voxels.div(20, "floor").clamp_min(1);
    const at::Tensor ends = (rank < few).to(at::kDouble) + (rank >= voxels - few).to(at::kDouble);
    return (all * (1 + options_.tails * ends * voxels / few)).to(at::kFloat);
  }

  Options options_;
};

}  // namespace

LossEntry dvh_entry() {
  return loss_entry<Dvh>("dvh", "Difference of the dose-volume histograms of structures", true);
}

}  // namespace vox
