// Losses on exact distances. surface_distance: probability counts by how far it is from the label, missing probability
// by how deep inside. boundary (Kervadec et al. 2019): the signed distance of the label, integrated over the
// prediction. hausdorff_dt (Karimi & Salcudean 2019): squared errors weighted by powers of the distances to both
// borders.
#include <torch/torch.h>

#include "losses/entry.h"
#include "ops/volume_ops.h"

namespace vox {
namespace {

class SurfaceDistance : public Loss {
 public:
  struct Options {
    double tau = 2;
    bool background = false;
    void describe(Visitor& v) {
      v.field("tau", tau, {.meaning = "Distances count up to this", .unit = "voxels", .min = 0, .above_min = true});
      v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
    }
  };
  SurfaceDistance(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [p, t] = regions_of(input, options_.background);
    const at::Tensor inside = t > 0.5;
    const at::Tensor distance = ops::signed_distance(inside, options_.tau) / options_.tau;
    const at::Tensor outside_far = distance.relu(), inside_deep = distance.neg().relu_();
    return mean_of_valid(outside_far * p + inside_deep * (t - p * inside), input.valid);
  }
  bool batch_wise(bool partial) const override { return partial; }

 private:
  Options options_;
};

class Boundary : public Loss {
 public:
  struct Options {
    double limit = 20;
    bool background = false;
    void describe(Visitor& v) {
      v.field("limit", limit, {.meaning = "Distances count up to this", .unit = "voxels", .min = 1, .max = 1e4});
      v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
    }
  };
  Boundary(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [p, t] = regions_of(input, options_.background);
    return mean_of_valid(p * ops::signed_distance(t > 0.5, options_.limit), input.valid);
  }
  bool batch_wise(bool partial) const override { return partial; }

 private:
  Options options_;
};

class HausdorffDt : public Loss {
 public:
  struct Options {
    double alpha = 2, limit = 20;
    bool background = false;
    void describe(Visitor& v) {
      v.field("alpha", alpha, {.meaning = "Power of the distances", .min = 0, .max = 10});
      v.field("limit", limit, {.meaning = "Distances count up to this", .unit = "voxels", .min = 1, .max = 1e4});
      v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
    }
  };
  HausdorffDt(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [p, t] = regions_of(input, options_.background);
    const at::Tensor weight = to_border(p.detach() > 0.5) + to_border(t > 0.5);
    return mean_of_valid((p - t).square() * weight, input.valid);
  }
  bool batch_wise(bool partial) const override { return partial; }

 private:
  // Distance to the border from either side, to the power; an empty mask has no border and weighs nothing.
  at::Tensor to_border(const at::Tensor& mask) const {
    const at::Tensor either = ops::signed_distance(mask, options_.limit).abs();
    const at::Tensor any = mask.flatten(2).any(2).view({mask.size(0), mask.size(1), 1, 1, 1});
    return either.pow(options_.alpha) * any;
  }
  Options options_;
};

}  // namespace

LossEntry surface_distance_entry() {
  return loss_entry<SurfaceDistance>("surface_distance", "Wrong probability by its distance from the label's surface");
}

LossEntry boundary_entry() {
  return loss_entry<Boundary>("boundary", "Signed distance of the label, integrated over the prediction");
}

LossEntry hausdorff_dt_entry() {
  return loss_entry<HausdorffDt>("hausdorff_dt", "Squared errors by powers of the distances to both borders");
}

}  // namespace vox
