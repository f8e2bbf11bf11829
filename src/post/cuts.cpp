// From probabilities to a mask: one level, or two (Canny 1986): what is above the low level and connected to something
// above the high one.
#include "config/params.h"
#include "kernels/components.h"
#include "post/connectivity.h"
#include "post/post.h"

namespace vox {
namespace {

struct ThresholdOptions {
  double level = 0.5;
  void describe(Visitor& v) {
    v.field("level", level, {.meaning = "Probability above which a voxel is foreground", .min = 0, .max = 1});
  }
};

struct HysteresisOptions : ConnectivityOptions {
  double low = 0.3, high = 0.7;
  void describe(Visitor& v) {
    v.field("low", low, {.meaning = "Voxels above this may be foreground", .min = 0, .max = 1});
    v.field("high", high, {.meaning = "Voxels above this are, with all of their piece", .min = 0, .max = 1});
    ConnectivityOptions::describe(v);
  }
};

// Of the first channel, the foreground: a boundary may come behind it, for the watershed that makes objects.
void cut(PostVolume& volume, double level) {
  volume.mask.resize(static_cast<size_t>(volume.extent.voxels()));
  for (size_t i = 0; i < volume.mask.size(); ++i)
    volume.mask[i] = static_cast<double>(volume.probability[i]) > level;  // NaN is background
}

void keep_seeded(PostVolume& volume, const HysteresisOptions& options) {
  cut(volume, options.low);
  std::vector<uint32_t> labels(volume.mask.size());
  const int64_t count = components_cpu(labels.data(), volume.mask.data(), volume.extent, options.value());
  std::vector<bool> seeded(static_cast<size_t>(count) + 1);
  for (size_t i = 0; i < labels.size(); ++i)
    if (static_cast<double>(volume.probability[i]) > options.high) seeded[labels[i]] = true;
  for (size_t i = 0; i < labels.size(); ++i) volume.mask[i] = labels[i] != 0 && seeded[labels[i]];
}

}  // namespace

PostEntry threshold_post() {
  return {"threshold", "Foreground is what lies above a level", PostKind::kCut,
          [](const Tree& params) -> PostStep {
            const auto options = parse_params<ThresholdOptions>(params, "postprocess: threshold");
            return {[options](PostVolume& volume) { cut(volume, options.level); }};
          },
          rows_of<ThresholdOptions>};
}

PostEntry hysteresis_post() {
  return {"hysteresis", "Pieces above a low level that hold something above a high one", PostKind::kCut,
          [](const Tree& params) -> PostStep {
            const auto options = parse_params<HysteresisOptions>(params, "postprocess: hysteresis");
            VOX_CHECK(options.low <= options.high, "postprocess: hysteresis: low is ", options.low, " and high ",
                      options.high, "; low must not be above high");
            options.value();
            return {[options](PostVolume& volume) { keep_seeded(volume, options); }, {6}};
          },
          rows_of<HysteresisOptions>};
}

}  // namespace vox
