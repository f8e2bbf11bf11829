// Affinities: whether a voxel and the one an offset before it belong to the same object, one channel per offset.
// Background belongs to none. Unknown where either voxel is not seen.
#include "config/params.h"
#include "targets/target.h"

namespace vox {
namespace {

struct AffinityOptions {
  std::vector<Extent3> offsets{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  void describe(Visitor& v) {
    v.field("offsets", offsets,
            {.meaning = "Steps back to the other voxel of each channel", .unit = "voxels", .min = 0, .max = 1000});
  }
};

class Affinity : public Target {
 public:
  explicit Affinity(const AffinityOptions& options) : offsets_(options.offsets) {}
  int64_t channels() const override { return static_cast<int64_t>(offsets_.size()); }

  DType dtype() const override { return DType::kInt8; }

  void make(const LabelPatch& patch, std::byte* out) const override {
    auto* value = reinterpret_cast<int8_t*>(out);
    const Extent3& e = patch.extent;
    for (const Extent3& offset : offsets_) {
      const int64_t back = (offset.z * e.y + offset.y) * e.x + offset.x;
      int64_t voxel = 0;
      for (int64_t z = 0; z < e.z; ++z) {
        for (int64_t y = 0; y < e.y; ++y) {
          for (int64_t x = 0; x < e.x; ++x, ++voxel) {
            const bool there = z >= offset.z && y >= offset.y && x >= offset.x;
            *value++ = between(patch.seen(voxel), there ? patch.seen(voxel - back) : std::nullopt);
          }
        }
      }
    }
  }

 private:
  static int8_t between(std::optional<uint8_t> one, std::optional<uint8_t> other) {
    return one && other ? int8_t{*one != 0 && *one == *other} : kUnknown;
  }
  std::vector<Extent3> offsets_;
};

}  // namespace

TargetEntry affinity_target() {
  return {"affinity", "Whether two voxels an offset apart are one object; a channel per offset",
          [](const Tree& params) -> std::unique_ptr<Target> {
            return std::make_unique<Affinity>(parse_params<AffinityOptions>(params, "loss.targets: affinity"));
          },
          rows_of<AffinityOptions>};
}

}  // namespace vox
