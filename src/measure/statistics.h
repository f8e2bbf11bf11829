// Medians, and how far they can be trusted.
#pragma once

#include <vector>

namespace vox {

double median_of(std::vector<double> values);  // 0 where there are none
double mean_of(const std::vector<double>& values);

struct Interval {
  double low = 0, high = 0;
};
// Between two of the values, by rank: with at least 95 % the true median lies there, however the values are spread
// (the sign test inverted); fewer than six cannot promise that much, and give the lowest and the highest. Linear in
// their number, because a running measurement asks after every step.
Interval median_interval(const std::vector<double>& values);

}  // namespace vox
