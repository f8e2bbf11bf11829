// Signed distance to the surface of the foreground, negative inside, in parts of a limit: -1 to 1.
#include <algorithm>
#include <cmath>

#include "config/params.h"
#include "kernels/edt.h"
#include "targets/target.h"

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
    auto* distance = reinterpret_cast<float*>(out);
    const std::vector<uint8_t> mask = foreground_of(patch);
    signed_distance_cpu(distance, mask.data(), patch.extent,
                        {.spacing = options_.spacing ? patch.spacing : Spacing3{}, .limit_mm = options_.limit});
    const auto limit = static_cast<float>(options_.limit);
    for (int64_t i = 0; i < patch.extent.voxels(); ++i) distance[i] = std::clamp(distance[i] / limit, -1.0f, 1.0f);
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
