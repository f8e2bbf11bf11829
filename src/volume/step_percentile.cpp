// Percentiles by nearest rank: the bounds are values that occur, so a volume of integers stays one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "config/params.h"
#include "volume/preprocess.h"

namespace vox {
namespace {

struct PercentileOptions {
  double low = 0.5, high = 99.5;
  void describe(Visitor& v) {
    v.field("low", low, {.meaning = "Percentile that becomes 0", .unit = "%", .min = 0, .max = 100});
    v.field("high", high, {.meaning = "Percentile that becomes 1", .unit = "%", .min = 0, .max = 100});
  }
};

template <class T>
constexpr bool kFewValues = std::is_integral_v<T> && sizeof(T) <= 2;

template <class T>
double value_at_rank(const T* values, int64_t count, int64_t rank) {
  if constexpr (kFewValues<T>) {
    constexpr auto kLowest = static_cast<int64_t>(std::numeric_limits<T>::lowest());
    std::vector<int64_t> histogram(size_t{1} << (8 * sizeof(T)), 0);
    for (int64_t i = 0; i < count; ++i) ++histogram[static_cast<size_t>(values[i] - kLowest)];
    size_t bin = 0;
    for (int64_t below = histogram[0]; below <= rank; below += histogram[bin]) ++bin;
    return static_cast<double>(static_cast<int64_t>(bin) + kLowest);
  } else {
    Buffer copy(count * static_cast<int64_t>(sizeof(T)));
    T* sorted = copy.as<T>();
    std::copy(values, values + count, sorted);
    std::nth_element(sorted, sorted + rank, sorted + count);
    return static_cast<double>(sorted[rank]);
  }
}

double stored_percentile(const Volume& volume, double percent) {
  const int64_t count = volume.info.voxels();
  const auto rank = static_cast<int64_t>(std::llround(percent / 100 * static_cast<double>(count - 1)));
  return with_type(volume.info.dtype, [&](auto tag) { return value_at_rank(volume.as<decltype(tag)>(), count, rank); });
}

class Percentile : public PreprocessMethod {
 public:
  explicit Percentile(const PercentileOptions& options) : options_(options) {}
  VolumeInfo plan(const VolumeInfo& info) const override {
    VolumeInfo after = info;
    after.scale = std::numeric_limits<double>::quiet_NaN();
    return after;
  }
  int64_t scratch_bytes(const VolumeInfo& info) const override {
    return with_type(info.dtype, [&](auto tag) { return kFewValues<decltype(tag)> ? 0 : info.bytes(); });
  }
  void apply(Volume& volume, VoxelKind) const override {
    VolumeInfo& info = volume.info;
    const bool falling = info.scale < 0;
    const double low = stored_percentile(volume, falling ? 100 - options_.low : options_.low);
    const double high = stored_percentile(volume, falling ? 100 - options_.high : options_.high);
    const double scale = info.scale, offset = info.offset;
    info.scale = 1, info.offset = 0;  // clip in stored values: no rounding by way of scale and offset
    clip_values(volume, std::min(low, high), std::max(low, high));
    info.scale = scale, info.offset = offset;
    const double low_value = low * scale + offset, range = (high - low) * scale;
    const double factor = range > 0 ? 1 / range : 0;
    map_values(info, factor, -low_value * factor);
  }

 private:
  PercentileOptions options_;
};

std::unique_ptr<PreprocessMethod> make(const Tree& params, const std::string& where) {
  const auto options = parse_params<PercentileOptions>(params, where);
  VOX_CHECK(options.low < options.high, where, ": low is ", options.low, " and high is ", options.high,
            "; low must be below high");
  return std::make_unique<Percentile>(options);
}

}  // namespace

PreprocessEntry percentile_preprocess() {
  return {"percentile", "Limit values to two percentiles and map these to 0 and 1", make, rows_of<PercentileOptions>};
}

}  // namespace vox
