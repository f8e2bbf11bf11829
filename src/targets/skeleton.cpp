// The skeleton of the foreground, for skeleton_recall: slice by slice with a closing (the medial surface of papyrus, as
// the scroll community trains with), or in three dimensions; each voxel keeps its class.
#include "config/params.h"
#include "kernels/morphology.h"
#include "kernels/thinning.h"
#include "targets/target.h"

namespace vox {
namespace {

struct SkeletonTargetOptions {
  std::string mode = "2d";
  bool close = true;
  int64_t dilate = 0;
  void describe(Visitor& v) {
    v.field("mode", mode, {.meaning = "Slices along z by themselves, or the volume", .choices = {"2d", "3d"}});
    v.field("close", close, {.meaning = "Close small gaps between the skeletons of slices"});
    v.field("dilate", dilate, {.meaning = "Make it thicker by so many voxels", .unit = "voxels", .min = 0, .max = 100});
  }
};

class Skeleton : public Target {
 public:
  explicit Skeleton(const SkeletonTargetOptions& options) : options_(options) {}

  void make(const LabelPatch& patch, std::byte* out) const override {
    std::vector<uint8_t> mask = foreground_of(patch);
    if (options_.mode == "2d") {
      thin_2d_cpu(mask.data(), mask.data(), patch.extent);
    } else {
      thin_3d_cpu(mask.data(), mask.data(), patch.extent);
    }
    if (options_.mode == "2d" && options_.close) close_cpu(mask.data(), mask.data(), patch.extent);
    if (options_.dilate > 0) dilate_cpu(mask.data(), mask.data(), patch.extent, static_cast<int>(options_.dilate));
    auto* value = reinterpret_cast<uint8_t*>(out);
    for (int64_t i = 0; i < patch.extent.voxels(); ++i)
      value[i] = mask[static_cast<size_t>(i)] ? patch.at(i) : uint8_t{0};
  }

 private:
  SkeletonTargetOptions options_;
};

}  // namespace

TargetEntry skeleton_target() {
  return {"skeleton", "Skeleton of the foreground, slice by slice or in three dimensions",
          [](const Tree& params) -> std::unique_ptr<Target> {
            return std::make_unique<Skeleton>(parse_params<SkeletonTargetOptions>(params, "loss.targets: skeleton"));
          },
          rows_of<SkeletonTargetOptions>};
}

}  // namespace vox
