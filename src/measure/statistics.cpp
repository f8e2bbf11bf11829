#include "measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace vox {

namespace {

double value_of_rank(std::vector<double>& values, size_t rank) {  // 0: the lowest
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t count = values.size();
  const double upper = value_of_rank(values, count / 2);
  return count % 2 == 1 ? upper : (value_of_rank(values, count / 2 - 1) + upper) / 2;
}

double mean_of(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Interval median_interval(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  // The normal distribution in place of the binomial one, half a value further out: of no number less than 95 %.
  const auto rank = static_cast<size_t>(std::max(0.0, std::floor((count - 1 - 1.96 * std::sqrt(count)) / 2)));
  std::vector<double> sorted = values;
  const double low = value_of_rank(sorted, rank);
  return {low, value_of_rank(sorted, values.size() - 1 - rank)};
}

std::string coverage_text(size_t count) {
  if (count >= kLeastForInterval) return "95 %";
  const double outside = count > 0 ? std::exp2(1 - static_cast<double>(count)) : 1;  // all on one side of the median
  return concat(std::floor(100 * (1 - outside)), " %");
}

}  // namespace vox
