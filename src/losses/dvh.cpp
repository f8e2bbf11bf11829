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
    if (found.places.size(0) == 0) return input.logits.sum() * 0;
    const at::Tensor wanted = input.target.select(1, 0).flatten().index_select(0, found.places);
    const at::Tensor predicted = values_in(found, input.logits.select(1, 0).flatten());
    return ((sorted_inside(found, predicted) - sorted_inside(found, wanted)).abs() * weights(found)).sum();
  }
  bool batch_wise(bool) const override { return true; }  // a mean over the structures that are there
  bool reads_back() const override { return true; }
  bool reads_image() const override { return !options_.structures.empty(); }

 private:
  // The voxels of every structure of every sample, one structure after the other.
  struct Structures {
    at::Tensor places, number;    // of each voxel: where it is in [N, Z, Y, X], which structure it is in
    at::Tensor voxels;            // of each structure, int64
    std::vector<int64_t> counts;  // the same on the host
    int64_t there = 0;            // structures with a voxel
  };

  Structures structures_of(const LossInput& input) const {
    const at::Tensor inside = masks_of(input);  // [N, structures, voxels]
    const int64_t structures = inside.size(1), volume = inside.size(2);
    Structures found{.voxels = inside.sum(2).flatten()};
    const at::Tensor counts = found.voxels.cpu(), all = inside.flatten().nonzero().squeeze(1);
    found.counts.assign(counts.const_data_ptr<int64_t>(), counts.const_data_ptr<int64_t>() + counts.numel());
    for (const int64_t count : found.counts) found.there += count > 0 ? 1 : 0;
    found.number = all.div(volume, "floor");
    found.places = found.number.div(structures, "floor") * volume + all.remainder(volume);
    return found;
  }

  at::Tensor masks_of(const LossInput& input) const {
    const at::Tensor counted = input.valid.defined() ? input.valid.select(1, 0).flatten(1).unsqueeze(1) > 0
                                                     : at::ones({1, 1, 1}, input.logits.options().dtype(at::kBool));
    if (options_.structures.empty()) return counted.expand({input.logits.size(0), 1, input.logits[0][0].numel()});
    VOX_CHECK(input.image.defined(), "loss.terms: dvh cannot see the structures: they are channels of the image");
    const auto structures = static_cast<int64_t>(options_.structures.size());
    at::Tensor inside = at::empty({input.logits.size(0), structures, input.logits[0][0].numel()},
                                  input.logits.options().dtype(at::kBool));
    for (int64_t i = 0; i < structures; ++i) {
      const int64_t channel = options_.structures[static_cast<size_t>(i)];
      VOX_CHECK(channel < input.image.size(1), "loss.terms: dvh: structure ", channel, " but the image has ",
                input.image.size(1), " channels");
      inside.select(1, i).copy_(input.image.select(1, channel).flatten(1) > 0.5);
    }
    return inside.logical_and_(counted);
  }

  // A voxel may lie in several structures: gradients of each structure on their own, added in order.
  static at::Tensor values_in(const Structures& found, const at::Tensor& volume) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& places : found.places.split_with_sizes(found.counts))
      if (places.size(0) > 0) parts.push_back(volume.index_select(0, places));
    return at::cat(parts);
  }

  // All structures by one sort: each lies in a range of keys of its own.
  static at::Tensor sorted_inside(const Structures& found, const at::Tensor& values) {
    const at::Tensor exact = values.detach().to(at::kDouble), least = exact.min(), range = exact.max() - least + 1;
    return values.index_select(0, (exact - least + found.number * range).argsort());
  }

  // What a difference counts for, by its rank: the mean over the structures of means over all voxels and over the ends.
  at::Tensor weights(const Structures& found) const {
    const at::Tensor share = found.voxels.to(at::kDouble).reciprocal() / static_cast<double>(found.there);
    const at::Tensor all = share.index_select(0, found.number);
    if (options_.tails == 0) return all.to(at::kFloat);
    const at::Tensor first = (found.voxels.cumsum(0) - found.voxels).index_select(0, found.number);
    const at::Tensor voxels = found.voxels.index_select(0, found.number);
    const at::Tensor few = voxels.div(20, "floor").clamp_min(1);
    const at::Tensor rank = at::arange(voxels.size(0), voxels.options()) - first;
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
