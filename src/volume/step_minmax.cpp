#include <limits>

#include "config/params.h"
#include "volume/preprocess.h"
#include "volume/statistics.h"

namespace vox {
namespace {

struct MinMaxOptions {
  double low = 0, high = 1;
  void describe(Visitor& v) {
    v.field("low", low, {.meaning = "What the smallest value of the volume becomes"});
    v.field("high", high, {.meaning = "What the largest value of the volume becomes"});
  }
};

class MinMax : public PreprocessMethod {
 public:
  explicit MinMax(const MinMaxOptions& options) : options_(options) {}
  VolumeInfo plan(const VolumeInfo& info) const override {
    VolumeInfo after = info;
    after.scale = std::numeric_limits<double>::quiet_NaN();
    return after;
  }
  bool rewrites_voxels() const override { return false; }
  StepNeeds needs() const override { return StepNeeds::kMoments; }
  void map_from(VolumeInfo& info, const Moments& stored) const override {
    const Moments moments = stored.mapped(info.scale, info.offset);
    const double range = moments.maximum - moments.minimum;
    const double factor = range > 0 ? (options_.high - options_.low) / range : 0;  // a constant volume becomes low
    map_values(info, factor, options_.low - moments.minimum * factor);
  }
  void apply(Volume& volume, VoxelKind) const override {
    map_from(volume.info, moments_of(volume.data.data(), volume.info.dtype, volume.info.voxels()));
  }

 private:
  MinMaxOptions options_;
};

std::unique_ptr<PreprocessMethod> make(const Tree& params, const std::string& where) {
  return std::make_unique<MinMax>(parse_params<MinMaxOptions>(params, where));
}

}  // namespace

PreprocessEntry minmax_preprocess() {
  return {"minmax", "Map the range of each volume to 0 .. 1", make, rows_of<MinMaxOptions>};
}

}  // namespace vox
