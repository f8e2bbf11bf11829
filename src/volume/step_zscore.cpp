#include <limits>

#include "base/error.h"
#include "config/params.h"
#include "volume/preprocess.h"
#include "volume/statistics.h"

namespace vox {
namespace {

struct ZScoreOptions {
  std::string scope = "case";
  bool foreground = false;
  std::vector<double> mean, std;
  void describe(Visitor& v) {
    v.field("scope", scope,
            {.meaning = "Mean and deviation of each volume, or of all training cases together",
             .choices = {"case", "dataset"}});
    v.field("foreground", foreground,
            {.meaning = "Voxels of value 0 do not count in mean and deviation, and stay 0; scope: case"});
    v.field("mean", mean,
            {.meaning = "Of each channel, known beforehand instead of measured; scope: dataset. Prediction takes those "
                        "of the training cases from the checkpoint"});
    v.field("std", std, {.meaning = "Standard deviations that belong to mean", .min = 0, .above_min = true});
  }
};

class ZScore : public PreprocessMethod {
 public:
  explicit ZScore(const ZScoreOptions& options) : options_(options) {}
  VolumeInfo plan(const VolumeInfo& info) const override {
    VolumeInfo after = info;
    after.scale = std::numeric_limits<double>::quiet_NaN();
    if (options_.foreground) after.dtype = DType::kFloat32, after.scale = 1, after.offset = 0;
    return after;
  }
  bool rewrites_voxels() const override { return options_.foreground; }
  bool over_dataset() const override { return options_.scope == "dataset"; }
  std::vector<ChannelStatistics> known_statistics() const override {
    std::vector<ChannelStatistics> known;
    for (size_t i = 0; i < options_.mean.size(); ++i) known.push_back({options_.mean[i], options_.std[i]});
    return known;
  }
  StepNeeds needs() const override { return options_.foreground ? StepNeeds::kVolume : StepNeeds::kMoments; }
  void map_from(VolumeInfo& info, const Moments& stored) const override {
    const Moments moments = stored.mapped(info.scale, info.offset);
    const double factor = moments.deviation() > 0 ? 1 / moments.deviation() : 1;  // a constant volume becomes 0
    map_values(info, factor, -moments.mean * factor);
  }
  void apply(Volume& volume, VoxelKind) const override {
    if (options_.foreground) return normalize_foreground(volume);
    map_from(volume.info, moments_of(volume.data.data(), volume.info.dtype, volume.info.voxels()));
  }

 private:
  // No map that is linear in the value does this: the result is real.
  void normalize_foreground(Volume& volume) const {
    VolumeInfo& info = volume.info;
    const double zero = stored_zero(info);
    map_from(info, moments_without(volume.data.data(), info.dtype, info.voxels(), zero));
    Volume normal = to_float32(volume);
    with_type(info.dtype, [&](auto tag) {
      const auto* stored = volume.as<decltype(tag)>();
      for (int64_t i = 0; i < info.voxels(); ++i)
        if (static_cast<double>(stored[i]) == zero) normal.data.as<float>()[i] = 0;
    });
    volume = std::move(normal);
  }

  ZScoreOptions options_;
};

std::unique_ptr<PreprocessMethod> make(const Tree& params, const std::string& where) {
  const auto options = parse_params<ZScoreOptions>(params, where);
  VOX_CHECK(options.mean.size() == options.std.size(), where, ": mean has ", options.mean.size(), " entries and std ",
            options.std.size(), "; both need one per channel");
  VOX_CHECK(options.mean.empty() || options.scope == "dataset", where, ": mean and std belong to scope: dataset");
  VOX_CHECK(!options.foreground || options.scope == "case", where,
            ": foreground: true belongs to scope: case; over a dataset every voxel counts");
  return std::make_unique<ZScore>(options);
}

}  // namespace

PreprocessEntry zscore_preprocess() {
  return {"zscore", "Subtract the mean, divide by the standard deviation", make, rows_of<ZScoreOptions>};
}

}  // namespace vox
