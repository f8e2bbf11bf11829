// Boundaries: voxels that have a face neighbour of another label, on both sides, as scikit-image's find_boundaries.
// Nothing lies beyond the patch. Unknown where a neighbour is ignored or masked.
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

  DType dtype() const override { return DType::kInt8; }

  void make(const LabelPatch& patch, std::byte* out) const override {
    auto* value = reinterpret_cast<int8_t*>(out);
    const Extent3& e = patch.extent;
    int64_t voxel = 0;
    for (int64_t z = 0; z < e.z; ++z) {
      for (int64_t y = 0; y < e.y; ++y) {
        for (int64_t x = 0; x < e.x; ++x, ++voxel) {
          Neighbours around{patch, voxel, patch.seen(voxel)};
          around.look_along(z, e.z, e.y * e.x);
          around.look_along(y, e.y, e.x);
          around.look_along(x, e.x, 1);
          *value++ = value_of(around);
        }
      }
    }
  }

 private:
  struct Neighbours {
    const LabelPatch& patch;
    int64_t voxel;
    std::optional<uint8_t> own;
    bool differs = false, hidden = false;

    void look_along(int64_t place, int64_t size, int64_t step) {
      if (place > 0) look(-step);
      if (place + 1 < size) look(step);
    }
    void look(int64_t step) {
      const std::optional<uint8_t> other = patch.seen(voxel + step);
      hidden |= !other;
      differs |= other && other != own;
    }
  };

  int8_t value_of(const Neighbours& around) const {
    if (!around.own || around.hidden) return kUnknown;
    return around.differs && (*around.own != 0 ? inner_ : outer_);
  }
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
