#include <limits>

#include "config/params.h"
#include "volume/preprocess.h"
#include "volume/statistics.h"

namespace vox {
namespace {

struct ZScoreOptions {
  std::string scope = "case";
  bool foreground = false;
  void describe(Visitor& v) {
    v.field("scope", scope,
            {.meaning = "Mean and deviation of each volume, or of all training cases together",
             .choices = {"case", "dataset"}});
    v.field("foreground", foreground, {.meaning = "Leave out voxels of value 0 from mean and deviation; scope: case"});
  }
};

class ZScore : public PreprocessMethod {
 public:
  explicit ZScore(const ZScoreOptions& options) : options_(options) {}
  VolumeInfo plan(const VolumeInfo& info) const override {
    VolumeInfo after = info;
    after.scale = std::numeric_limits<double>::quiet_NaN();
    return after;
  }
  bool rewrites_voxels() const override { return false; }
  bool over_dataset() const override { return options_.scope == "dataset"; }
  bool map_from(VolumeInfo& info, const Moments& stored) const override {
    if (options_.foreground) return false;
    map(info, stored);
    return true;
  }
  void apply(Volume& volume, VoxelKind) const override {
    VolumeInfo& info = volume.info;
    const std::byte* data = volume.data.data();
    map(info, options_.foreground ? moments_without(data, info.dtype, info.voxels(), -info.offset / info.scale)
                                  : moments_of(data, info.dtype, info.voxels()));
  }

 private:
  static void map(VolumeInfo& info, const Moments& stored) {
    const Moments moments = stored.mapped(info.scale, info.offset);
    const double factor = moments.deviation() > 0 ? 1 / moments.deviation() : 1;  // a constant volume becomes 0
    map_values(info, factor, -moments.mean * factor);
  }

  ZScoreOptions options_;
};

std::unique_ptr<PreprocessMethod> make(const Tree& params, const std::string& where) {
  return std::make_unique<ZScore>(parse_params<ZScoreOptions>(params, where));
}

}  // namespace

PreprocessEntry zscore_preprocess() {
  return {"zscore", "Subtract the mean, divide by the standard deviation", make, rows_of<ZScoreOptions>};
}

}  // namespace vox
