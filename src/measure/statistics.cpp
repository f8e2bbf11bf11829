#include "measure/statistics.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"

namespace vox {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

double mean_of(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Interval median_interval(const std::vector<double>& values) {
  if (values.empty()) return {};
  constexpr size_t kResamples = 2000;
  Random random(0, 0, kSynthStream);
  std::vector<double> medians(kResamples), drawn(values.size());
  for (double& one : medians) {
    for (double& value : drawn) value = values[static_cast<size_t>(random.below(static_cast<int64_t>(values.size())))];
    one = median_of(drawn);
  }
  std::sort(medians.begin(), medians.end());
  return {medians[kResamples / 40], medians[kResamples - 1 - kResamples / 40]};
}

}  // namespace vox
