// Least, greatest, mean and deviation of a patch.
#pragma once

#include <cstdint>

namespace vox {

struct PatchMoments {
  float low = 0, high = 0;
  double mean = 0, deviation = 0;  // of the population: divided by count
};
PatchMoments moments_cpu(const float* data, int64_t count);  // two passes, sums in double; the same on any machine

// Two passes without low and high.
void mean_and_deviation_cpu(const float* data, int64_t count, double* mean, double* deviation);

}  // namespace vox
