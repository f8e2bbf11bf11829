// Losses on soft skeletons. Shit et al. 2021, clDice: how much of the predicted skeleton lies in the label, and how
// much of the label's in the prediction. morph_skeleton: the mean difference of the two skeletons. Skeletons are those
// of iterated erosions and openings, or those of thinning (Menten et al. 2023), which keep the map's topology.
#include <torch/torch.h>

#include "losses/entry.h"
#include "ops/soft_thinning.h"
#include "ops/volume_ops.h"

namespace vox {
namespace {

struct SkeletonOptions {
  int64_t iterations = 3;
  std::string erosion = "cross", skeleton = "iterated";
  double noise = 0.33;
  void describe(Visitor& v) {
    v.field("skeleton", skeleton,
            {.meaning = "Soft, by erosions and openings, or (menten) by thinning that keeps the topology, on the CPU",
             .choices = {"iterated", "menten"}});
    v.field("noise", noise,
            {.meaning = "With `skeleton: menten`, logistic noise on the logits that are rounded; 0 is none, with 1 a "
                        "voxel counts as often as it is probable",
             .min = 0,
             .max = 1});
    v.field("iterations", iterations,
            {.meaning = "Erosions or layers: half the thickness of what is skeletonised", .min = 1, .max = 100});
    v.field(
        "erosion", erosion,
        {.meaning = "Neighbours that erode: the six of the faces, as MONAI, or all 26", .choices = {"cross", "cube"}});
  }
  bool thins() const { return skeleton == "menten"; }
  SoftSkeletonOptions kernel() const {
    return {static_cast<int>(iterations), erosion == "cross" ? SoftErosion::kCross : SoftErosion::kCube};
  }
};

struct Skeletons {
  at::Tensor prediction, target;  // zero where a voxel does not count
};
Skeletons skeletons_of(const Regions& regions, const SkeletonOptions& options, const LossInput& input) {
  const auto skeleton = [&](const at::Tensor& values, double noise) {
    const at::Tensor all =
        options.thins()
            ? ops::soft_thinning(values, {.iterations = static_cast<int>(options.iterations), .noise = noise})
            : ops::soft_skeleton(values, options.kernel());
    return input.valid.defined() ? all * input.valid : all;
  };
  return {skeleton(regions.probability, options.noise), skeleton(regions.target, 0)};
}

class ClDice : public Loss {
 public:
  struct Options : SkeletonOptions, RegionOptions {
    Options() { smooth = 1; }
    void describe(Visitor& v) {
      SkeletonOptions::describe(v);
      RegionOptions::describe(v);
    }
  };
  ClDice(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const bool one_mask = !input.valid.defined() || input.valid.size(1) == 1;
    if (!options_.batch && !options_.thins() && one_mask && ops::has_fused_cldice(input.logits)) return fused(input);
    const Regions regions = regions_of(input, options_.background);
    const auto& [p, t] = regions;
    const auto [of_p, of_t] = skeletons_of(regions, options_, input);
    const std::vector<int64_t> summed = options_.summed();
    const double s = options_.smooth;
    const at::Tensor precision = ((of_p * t).sum(summed) + s) / (of_p.sum(summed) + s);
    const at::Tensor recall = ((of_t * p).sum(summed) + s) / (of_t.sum(summed) + s);
    return (1 - 2 * precision * recall / (precision + recall)).mean();
  }
  bool batch_wise(bool) const override { return options_.batch; }
  bool reads_back() const override { return options_.thins(); }

 private:
  at::Tensor fused(const LossInput& input) const {
    const ops::ClDiceOptions options{.skeleton = options_.kernel(),
                                     .smooth = options_.smooth,
                                     .logits = input.logits.size(1) == 1,
                                     .mask = input.one_hot};
    if (!options.logits) {
      const auto [p, t] = regions_of(input, options_.background);
      return ops::fused_cldice(p, t, input.valid, options).mean();
    }
    const at::Tensor t = input.valid.defined() ? input.target * input.valid : input.target;
    return ops::fused_cldice(input.logits, t, input.valid, options).mean();
  }
  Options options_;
};

class MorphSkeleton : public Loss {
 public:
  struct Options : SkeletonOptions {
    bool background = false;
    void describe(Visitor& v) {
      SkeletonOptions::describe(v);
      v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
    }
  };
  MorphSkeleton(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [of_p, of_t] = skeletons_of(regions_of(input, options_.background), options_, input);
    return mean_of_valid((of_p - of_t).abs(), input.valid);
  }
  bool batch_wise(bool partial) const override { return partial; }
  bool reads_back() const override { return options_.thins(); }

 private:
  Options options_;
};

// The public surface baseline's sixth term: both maps are eroded several times; what is left, and how much of it is
// nearly nothing, must agree.
class ErosionConsistency : public Loss {
 public:
  struct Options {
    int64_t iterations = 2;  // an erosion of five voxels is two of three
    double level = 0.2;
    bool background = false;
    void describe(Visitor& v) {
      v.field("iterations", iterations, {.meaning = "Erosions by all 26 neighbours", .min = 1, .max = 100});
      v.field("level", level, {.meaning = "Below this an eroded value counts as a gap", .min = 0, .max = 1});
      v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
    }
  };
  ErosionConsistency(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const Regions regions = regions_of(input, options_.background);
    const at::Tensor p = eroded(regions.probability), t = eroded(regions.target);
    const at::Tensor gaps = mean_of_valid((options_.level - p).relu(), input.valid) -
                            mean_of_valid((options_.level - t).relu(), input.valid);
    return mean_of_valid((p - t).abs(), input.valid) + gaps.abs();
  }
  bool batch_wise(bool) const override { return true; }  // the gaps of a batch are compared together

 private:
  at::Tensor eroded(at::Tensor values) const {
    for (int64_t i = 0; i < options_.iterations; ++i) values = ops::soft_erode(values, SoftErosion::kCube);
    return values;
  }
  Options options_;
};

// Kirchhoff et al. 2024: the share of the label's skeleton that the prediction covers. The skeleton comes as a target.
class SkeletonRecall : public Loss {
 public:
  using Options = RegionOptions;
  SkeletonRecall(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [p, skeleton] = regions_of(input, options_.background);
    const std::vector<int64_t> summed = options_.summed();
    const at::Tensor covered = (p * skeleton).sum(summed), all = skeleton.sum(summed);
    return (1 - (covered + options_.smooth) / (all + options_.smooth)).mean();
  }
  bool batch_wise(bool) const override { return options_.batch; }

 private:
  Options options_;
};

}  // namespace

LossEntry cldice_entry() {
  return loss_entry<ClDice>("cldice", "Overlap of soft skeletons with the other map");
}

LossEntry morph_skeleton_entry() {
  return loss_entry<MorphSkeleton>("morph_skeleton", "Mean difference of the soft skeletons");
}

LossEntry erosion_consistency_entry() {
  return loss_entry<ErosionConsistency>("erosion_consistency", "Difference of what erosions leave of both maps");
}

LossEntry skeleton_recall_entry() {
  LossEntry entry = loss_entry<SkeletonRecall>("skeleton_recall", "Share of the label's skeleton that is covered");
  entry.default_target = "skeleton";
  return entry;
}

}  // namespace vox
