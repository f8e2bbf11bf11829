// Boundaries: voxels that have a face neighbour of another label, on both sides, as scikit-image's find_boundaries.
#include "config/params.h"
#include "targets/target.h"

namespace vox {
namespace {

struct BoundaryOptions {
  std::string side = "both";
  void describe(Visitor& v) {
    v.field("side", side, {.meaning = "Which voxels of a boundary count", .choices = {"both", "inner", "outer"}});
  }
};

class BoundaryTarget : public Target {
 public:
  explicit BoundaryTarget(const BoundaryOptions& options)
      : inner_(options.side != "outer"), outer_(options.side != "inner") {}

  void make(const LabelPatch& patch, std::byte* out) const override {
    auto* value = reinterpret_cast<uint8_t*>(out);
    const Extent3& e = patch.extent;
    int64_t voxel = 0;
    for (int64_t z = 0; z < e.z; ++z) {
      for (int64_t y = 0; y < e.y; ++y) {
        for (int64_t x = 0; x < e.x; ++x, ++voxel) {
          const uint8_t own = patch.at(voxel);
          const auto differs = [&](bool there, int64_t step) { return there && patch.at(voxel + step) != own; };
          const bool border = differs(z > 0, -e.y * e.x) || differs(z + 1 < e.z, e.y * e.x) || differs(y > 0, -e.x) ||
                              differs(y + 1 < e.y, e.x) || differs(x > 0, -1) || differs(x + 1 < e.x, 1);
          *value++ = border && (own != 0 ? inner_ : outer_);
        }
      }
    }
  }

 private:
  bool inner_, outer_;
};

}  // namespace

TargetEntry boundary_target() {
  return {"boundary", "Voxels with a face neighbour of another label",
          [](const Tree& params) -> std::unique_ptr<Target> {
            return std::make_unique<BoundaryTarget>(parse_params<BoundaryOptions>(params, "loss.targets: boundary"));
          },
          rows_of<BoundaryOptions>};
}

}  // namespace vox
