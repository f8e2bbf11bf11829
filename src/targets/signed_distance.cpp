// Signed distance to the surface of the foreground, negative inside, in parts of a limit: -1 to 1. Measured between
// centres of voxels of the patch. Unknown where hidden voxels are nearer than the limit.
#include <cmath>

#include "config/params.h"
#include "targets/distances.h"

namespace vox {
namespace {

struct SignedDistanceOptions {
  double limit = 8;
  bool spacing = false;
  void describe(Visitor& v) {
    v.field("limit", limit,
            {.meaning = "Distance that is 1, and all beyond it", .unit = "voxels, or mm", .min = 0, .above_min = true});
    v.field("spacing", spacing, {.meaning = "Measure in mm instead of voxels"});
  }
};

class SignedDistance : public Target {
 public:
  explicit SignedDistance(const SignedDistanceOptions& options) : options_(options) {}
  DType dtype() const override { return DType::kFloat32; }

  void make(const LabelPatch& patch, std::byte* out) const override {
    const EdtOptions edt{.spacing = options_.spacing ? patch.spacing : Spacing3{}, .limit_mm = options_.limit};
    const auto is_inside = [&](int64_t voxel) { return patch.seen(voxel).value_or(0) != 0; };
    const auto is_outside = [&](int64_t voxel) { return patch.seen(voxel) == 0; };
    const std::vector<float> to_inside = squared_distances_to(is_inside, patch.extent, edt),
                             to_outside = squared_distances_to(is_outside, patch.extent, edt),
                             to_hidden = squared_distances_to_hidden(patch, edt);
    const auto limit = static_cast<float>(options_.limit),
               at_limit = static_cast<float>(options_.limit * options_.limit);
    auto* value = reinterpret_cast<float*>(out);
    for (size_t i = 0; i < to_hidden.size(); ++i) {
      const bool inside = to_inside[i] == 0;
      const float part = std::sqrt(inside ? to_outside[i] : to_inside[i]) / limit;
      value[i] = to_hidden[i] < at_limit ? kUnknownValue : inside ? -part : part;
    }
  }

 private:
  SignedDistanceOptions options_;
};

}  // namespace

TargetEntry signed_distance_target() {
  return {"signed_distance", "Distance to the foreground's surface, negative inside, in parts of a limit",
          [](const Tree& params) -> std::unique_ptr<Target> {
            return std::make_unique<SignedDistance>(
                parse_params<SignedDistanceOptions>(params, "loss.targets: signed_distance"));
          },
          rows_of<SignedDistanceOptions>};
}

}  // namespace vox
