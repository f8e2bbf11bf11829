#include "kernels/low_resolution.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace vox {
namespace {

std::vector<int64_t> nearest_of(int64_t fine, int64_t coarse) {
  std::vector<int64_t> from;
  for (int64_t i = 0; i < coarse; ++i)
    from.push_back(std::min(fine - 1, (2 * i + 1) * fine / (2 * coarse)));  // floor((i + 1/2) * fine / coarse)
  return from;
}

struct Taps {
  std::vector<int32_t> low, high;
  std::vector<float> fraction;
};

Taps linear_taps(int64_t fine, int64_t coarse) {
  Taps taps;
  for (int64_t i = 0; i < fine; ++i) {
    const double at =
        std::max(0.0, (static_cast<double>(i) + 0.5) * static_cast<double>(coarse) / static_cast<double>(fine) - 0.5);
    const int64_t low = std::min<int64_t>(coarse - 1, static_cast<int64_t>(at));
    taps.low.push_back(static_cast<int32_t>(low));
    taps.high.push_back(static_cast<int32_t>(std::min(coarse - 1, low + 1)));
    taps.fraction.push_back(static_cast<float>(at - static_cast<double>(low)));
  }
  return taps;
}

void mix_rows(float* out, const float* a, const float* b, float fraction, int64_t width) {
  for (int64_t x = 0; x < width; ++x) out[x] = a[x] + fraction * (b[x] - a[x]);
}

void stretch_row(float* out, const float* row, const Taps& taps) {
  const int64_t width = static_cast<int64_t>(taps.low.size());
  int64_t x = 0;
  for (; x + 8 <= width; x += 8) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(taps.low.data() + x));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(taps.high.data() + x));
    const __m256 a = _mm256_i32gather_ps(row, low, 4), b = _mm256_i32gather_ps(row, high, 4);
    const __m256 product = _mm256_mul_ps(_mm256_loadu_ps(taps.fraction.data() + x), _mm256_sub_ps(b, a));
    _mm256_storeu_ps(out + x, _mm256_add_ps(a, product));
  }
  for (; x < width; ++x) {
    const size_t i = static_cast<size_t>(x);
    out[x] = row[taps.low[i]] + taps.fraction[i] * (row[taps.high[i]] - row[taps.low[i]]);
  }
}

std::vector<float> shrunk(const float* data, const Extent3& extent, const Extent3& coarse) {
  std::vector<float> small(static_cast<size_t>(coarse.voxels()));
  const std::vector<int64_t> from_z = nearest_of(extent.z, coarse.z), from_y = nearest_of(extent.y, coarse.y),
                             from_x = nearest_of(extent.x, coarse.x);
  float* out = small.data();
  for (const int64_t z : from_z)
    for (const int64_t y : from_y) {
      const float* row = data + (z * extent.y + y) * extent.x;
      for (const int64_t x : from_x) *out++ = row[x];
    }
  return small;
}

}  // namespace

CoarseTaps coarse_taps(int64_t fine, int64_t coarse) {
  const std::vector<int64_t> from = nearest_of(fine, coarse);
  Taps taps = linear_taps(fine, coarse);
  for (int32_t& low : taps.low) low = static_cast<int32_t>(from[static_cast<size_t>(low)]);
  for (int32_t& high : taps.high) high = static_cast<int32_t>(from[static_cast<size_t>(high)]);
  return {std::move(taps.low), std::move(taps.high), std::move(taps.fraction)};
}

void low_resolution_cpu(float* data, const Extent3& extent, const Extent3& coarse) {
  VOX_ASSERT(coarse.z > 0 && coarse.y > 0 && coarse.x > 0);
  if (extent.voxels() == 0 || extent == coarse) return;
  const std::vector<float> small = shrunk(data, extent, coarse);
  const Taps along_z = linear_taps(extent.z, coarse.z), along_y = linear_taps(extent.y, coarse.y),
             along_x = linear_taps(extent.x, coarse.x);
  const int64_t slice = coarse.y * coarse.x;
  std::vector<float> plane(static_cast<size_t>(slice)), row(static_cast<size_t>(coarse.x));
  for (size_t z = 0; z < along_z.low.size(); ++z) {
    mix_rows(plane.data(), small.data() + along_z.low[z] * slice, small.data() + along_z.high[z] * slice,
             along_z.fraction[z], slice);
    for (size_t y = 0; y < along_y.low.size(); ++y) {
      mix_rows(row.data(), plane.data() + along_y.low[y] * coarse.x, plane.data() + along_y.high[y] * coarse.x,
               along_y.fraction[y], coarse.x);
      stretch_row(data + (static_cast<int64_t>(z) * extent.y + static_cast<int64_t>(y)) * extent.x, row.data(),
                  along_x);
    }
  }
}

}  // namespace vox
