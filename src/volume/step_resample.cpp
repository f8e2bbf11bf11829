#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "config/params.h"
#include "volume/preprocess.h"
#include "volume/resample.h"

namespace vox {
namespace {

struct ResampleOptions {
  std::vector<double> spacing, factor;
  Extent3 shape{0, 0, 0};
  void describe(Visitor& v) {
    v.field("spacing", spacing,
            {.meaning = "Voxel size wanted: z, y, x", .unit = "mm", .min = 0, .above_min = true, .max_items = 3});
    v.field("shape", shape, {.meaning = "Size wanted", .unit = "voxels", .min = 0, .max = 65536});
    v.field("factor", factor,
            {.meaning = "Output voxels per input voxel: one number or z, y, x",
             .min = 0,
             .above_min = true,
             .max_items = 3});
  }
};

double per_axis(const std::vector<double>& values, int axis) {
  return values[values.size() == 1 ? 0 : static_cast<size_t>(axis)];
}

class Resample : public PreprocessMethod {
 public:
  explicit Resample(const ResampleOptions& options) : options_(options) {}

  bool for_every_role() const override { return true; }
  VolumeInfo plan(const VolumeInfo& info) const override { return resampled_info(info, extent_after(info)); }
  void apply(Volume& volume, VoxelKind kind) const override {
    const Extent3 extent = extent_after(volume.info);
    if (extent == volume.info.extent) return;
    volume = resample(volume, extent, kind == VoxelKind::kValues ? ResampleMethod::kLinear : ResampleMethod::kNearest);
  }

 private:
  Extent3 extent_after(const VolumeInfo& info) const {
    if (options_.shape.voxels() > 0) return options_.shape;
    VOX_CHECK(options_.spacing.empty() || info.spacing,
              "data.preprocess: resample to a spacing needs the file's own, and it says none; use factor or shape");
    Extent3 extent;
    for (int axis = 0; axis < 3; ++axis) {
      const double factor = options_.spacing.empty() ? per_axis(options_.factor, axis)
                                                     : (*info.spacing)[axis] / per_axis(options_.spacing, axis);
      extent[axis] = std::max<int64_t>(1, std::llround(static_cast<double>(info.extent[axis]) * factor));
    }
    return extent;
  }
  ResampleOptions options_;
};

std::unique_ptr<PreprocessMethod> make(const Tree& params, const std::string& where) {
  const auto options = parse_params<ResampleOptions>(params, where);
  const int given = !options.spacing.empty() + !options.factor.empty() + (options.shape.voxels() > 0);
  VOX_CHECK(given == 1, where, ": give one of spacing, shape and factor");
  for (const auto& values : {options.spacing, options.factor})
    VOX_CHECK(values.size() != 2, where, ": two numbers were given; expected one, or three for z, y, x");
  return std::make_unique<Resample>(options);
}

}  // namespace

PreprocessEntry resample_preprocess() {
  return {"resample", "Bring volumes to a spacing, a shape, or by a factor", make, rows_of<ResampleOptions>};
}

}  // namespace vox
