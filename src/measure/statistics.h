// Medians, and how far they can be trusted.
#pragma once

#include <cstddef>
#include <string>
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
constexpr size_t kLeastForInterval = 6;   // values, for the 95 %
std::string coverage_text(size_t count);  // what the interval of so many promises: "95 %", of three "75 %"

}  // namespace vox
