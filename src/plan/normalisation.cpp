#include "plan/normalisation.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "plan/recipe_text.h"
#include "plan/topology.h"

namespace vox {
namespace {

enum class Scheme { kCt, kZscore, kMinmax, kRgb, kNone };

// Hounsfield units: air is -1000, whoever measured it.
bool has_hounsfield_units(const Fingerprint& print, size_t channel) {
  std::vector<double> minima;
  for (const CasePrint& item : print.cases) minima.push_back(item.minimum[channel]);
  return percentile(std::move(minima), 50) <= -500;
}

Scheme scheme_of(const std::string& name) {  // those of nnU-Net, whatever their case
  const std::string known = lower(name);
  return known == "ct"               ? Scheme::kCt
         : known == "nonorm"         ? Scheme::kNone
         : known == "rescale_to_0_1" ? Scheme::kMinmax
         : known == "rgb_to_0_1"     ? Scheme::kRgb
                                     : Scheme::kZscore;
}

std::vector<Scheme> schemes_of(const Fingerprint& print, const std::vector<std::string>& names, bool by_values) {
  std::vector<Scheme> schemes;
  for (size_t channel = 0; channel < print.foreground.size(); ++channel) {
    Scheme scheme = channel < names.size() ? scheme_of(names[channel]) : Scheme::kZscore;
    if (names.empty() && by_values && has_hounsfield_units(print, channel)) scheme = Scheme::kCt;
    const Intensities& one = print.foreground[channel];
    const bool flat = one.deviation <= 0 || one.low >= one.high;  // what is labelled has one value: no range to keep
    schemes.push_back(scheme == Scheme::kCt && flat ? Scheme::kZscore : scheme);
  }
  return schemes;
}

std::string range_of_means(const Fingerprint& print, const std::vector<int64_t>& channels) {
  const auto first = static_cast<size_t>(channels.front());
  double low = print.cases.front().mean[first], high = low;
  for (const CasePrint& item : print.cases)
    for (const int64_t channel : channels) {
      const double mean = item.mean[static_cast<size_t>(channel)];
      low = std::min(low, mean), high = std::max(high, mean);
    }
  return concat("means of volumes lie between ", rounded(low, 4), " and ", rounded(high, 4));
}

class Steps {
 public:
  explicit Steps(const Fingerprint& print) : print_(print) {}

  void add_ct(size_t channel) {
    const Intensities& one = print_.foreground[channel];
    const std::string only = only_for({static_cast<int64_t>(channel)});
    add(concat("{name: clip, min: ", shortest(one.low), ", max: ", shortest(one.high), only, "}"),
        "CT is in Hounsfield units, the same everywhere: percentiles 0.5 and 99.5 of labelled voxels.");
    add(concat("{name: normalize, mean: ", rounded(one.mean, 7), ", std: ", rounded(one.deviation, 7), only, "}"),
        "Mean and deviation of labelled voxels over all cases.");
  }
  void add_zscore(const std::vector<int64_t>& channels) {
    const bool foreground = print_.relative_size < 0.75;
    add(concat("{name: zscore", foreground ? ", foreground: true" : "", only_for(channels), "}"),
        concat("Each volume by its own mean and deviation: ", range_of_means(print_, channels),
               foreground ? ". Without the zeros around, which are most of a volume." : "."));
  }
  void add_minmax(const std::vector<int64_t>& channels) {
    add(concat("{name: minmax", only_for(channels), "}"),
        "rescale_to_0_1, as the dataset asks: the range of each volume becomes 0 .. 1.");
  }
  void add_rgb(const std::vector<int64_t>& channels) {
    add(concat("{name: normalize, mean: 0, std: 255", only_for(channels), "}"),
        "rgb_to_0_1, as the dataset asks: 0 .. 255 becomes 0 .. 1.");
  }
  std::vector<PlannedStep> take() { return std::move(steps_); }

 private:
  void add(const std::string& text, const std::string& why) { steps_.push_back({text, why}); }
  std::string only_for(const std::vector<int64_t>& channels) const {
    return channels.size() == print_.foreground.size() ? "" : ", channels: " + yaml(channels);
  }

  const Fingerprint& print_;
  std::vector<PlannedStep> steps_;
};

}  // namespace

std::vector<PlannedStep> plan_normalisation(const Fingerprint& print, const std::vector<std::string>& names,
                                            bool by_values) {
  const std::vector<Scheme> schemes = schemes_of(print, names, by_values);
  const auto channels_of = [&](Scheme wanted) {
    std::vector<int64_t> channels;
    for (size_t i = 0; i < schemes.size(); ++i)
      if (schemes[i] == wanted) channels.push_back(static_cast<int64_t>(i));
    return channels;
  };
  Steps steps(print);
  for (const int64_t channel : channels_of(Scheme::kCt)) steps.add_ct(static_cast<size_t>(channel));
  if (const auto channels = channels_of(Scheme::kMinmax); !channels.empty()) steps.add_minmax(channels);
  if (const auto channels = channels_of(Scheme::kRgb); !channels.empty()) steps.add_rgb(channels);
  if (const auto channels = channels_of(Scheme::kZscore); !channels.empty()) steps.add_zscore(channels);
  return steps.take();
}

}  // namespace vox
