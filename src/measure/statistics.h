// Medians, and how far they can be trusted.
#pragma once

#include <vector>

namespace vox {

double median_of(std::vector<double> values);  // 0 where there are none
double mean_of(const std::vector<double>& values);

struct Interval {
  double low = 0, high = 0;
};
// 95 % of medians of resampled values (bootstrap, Efron 1979) lie in it; the draws are the same every time.
Interval median_interval(const std::vector<double>& values);

}  // namespace vox
