#include "kernels/moments.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>

namespace vox {
namespace {

// Sums of eight lanes in double, added in a fixed order.
struct Sum8 {
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  double rest = 0;

  void add(__m256 values) {
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(values)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1)));
  }
  void add_square(__m256 values, __m256d mean) {
    const __m256d a = _mm256_sub_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(values)), mean);
    const __m256d b = _mm256_sub_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(values, 1)), mean);
    low = _mm256_fmadd_pd(a, a, low);
    high = _mm256_fmadd_pd(b, b, high);
  }
  double total() const {
    alignas(32) double lanes[4];
    _mm256_store_pd(lanes, _mm256_add_pd(low, high));
    return lanes[0] + lanes[1] + lanes[2] + lanes[3] + rest;
  }
};

}  // namespace

void mean_and_deviation_cpu(const float* data, int64_t count, double* mean, double* deviation) {
  *mean = *deviation = 0;
  if (count == 0) return;
  Sum8 sum, squares;
  const int64_t whole = count / 8 * 8;
  for (int64_t i = 0; i < whole; i += 8) sum.add(_mm256_loadu_ps(data + i));
  for (int64_t i = whole; i < count; ++i) sum.rest += static_cast<double>(data[i]);
  *mean = sum.total() / static_cast<double>(count);
  const __m256d centre = _mm256_set1_pd(*mean);
  for (int64_t i = 0; i < whole; i += 8) squares.add_square(_mm256_loadu_ps(data + i), centre);
  for (int64_t i = whole; i < count; ++i) {
    const double difference = static_cast<double>(data[i]) - *mean;
    squares.rest += difference * difference;
  }
  *deviation = std::sqrt(squares.total() / static_cast<double>(count));
}

PatchMoments moments_cpu(const float* data, int64_t count) {
  PatchMoments moments;
  if (count == 0) return moments;
  __m256 low = _mm256_set1_ps(data[0]), high = low;
  const int64_t whole = count / 8 * 8;
  for (int64_t i = 0; i < whole; i += 8) {
    const __m256 values = _mm256_loadu_ps(data + i);
    low = _mm256_min_ps(low, values);
    high = _mm256_max_ps(high, values);
  }
  alignas(32) float lows[8], highs[8];
  _mm256_store_ps(lows, low);
  _mm256_store_ps(highs, high);
  moments.low = *std::min_element(lows, lows + 8);
  moments.high = *std::max_element(highs, highs + 8);
  for (int64_t i = whole; i < count; ++i) {
    moments.low = std::min(moments.low, data[i]);
    moments.high = std::max(moments.high, data[i]);
  }
  mean_and_deviation_cpu(data, count, &moments.mean, &moments.deviation);
  return moments;
}

}  // namespace vox
