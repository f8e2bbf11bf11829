// The kernels of intensity transforms against plain double loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "kernels/blur.h"
#include "kernels/gamma.h"
#include "kernels/low_resolution.h"
#include "kernels/moments.h"

namespace vox {
namespace {

std::vector<float> random_patch(const Extent3& extent, uint64_t seed) {
  Random random(seed, 0, 0);
  std::vector<float> values(static_cast<size_t>(extent.voxels()));
  for (float& value : values) value = static_cast<float>(3 * random.normal() + 1);
  return values;
}

struct Reference {  // a patch in double
  Extent3 extent;
  std::vector<double> values;

  Reference(const Extent3& size, const std::vector<float>& from) : extent(size), values(from.begin(), from.end()) {}
  double& at(int64_t z, int64_t y, int64_t x) { return values[static_cast<size_t>((z * extent.y + y) * extent.x + x)]; }
};

int64_t bounced(int64_t i, int64_t size) {  // steps back from each border until it is inside
  while (i < 0 || i >= size) {
    if (size == 1) return 0;
    i = i < 0 ? -i : 2 * (size - 1) - i;
  }
  return i;
}

// The whole kernel at once, in three dimensions.
Reference blurred(Reference patch, const double (&sigma)[3]) {
  Reference out = patch;
  int64_t radius[3];
  double norm = 0;
  for (int axis = 0; axis < 3; ++axis) {
    const double taps = 6 * sigma[axis] + 0.5;
    int64_t odd = 1;
    while (std::abs(static_cast<double>(odd + 2) - taps) <= std::abs(static_cast<double>(odd) - taps)) odd += 2;
    radius[axis] = sigma[axis] > 0 ? (odd - 1) / 2 : 0;
  }
  const auto weight = [&](int64_t z, int64_t y, int64_t x) {
    const double d[3] = {static_cast<double>(z), static_cast<double>(y), static_cast<double>(x)};
    double exponent = 0;
    for (int axis = 0; axis < 3; ++axis)
      if (sigma[axis] > 0) exponent += d[axis] * d[axis] / (2 * sigma[axis] * sigma[axis]);
    return std::exp(-exponent);
  };
  const auto for_taps = [&](const auto& visit) {
    for (int64_t a = -radius[0]; a <= radius[0]; ++a)
      for (int64_t b = -radius[1]; b <= radius[1]; ++b)
        for (int64_t c = -radius[2]; c <= radius[2]; ++c) visit(a, b, c);
  };
  for_taps([&](int64_t a, int64_t b, int64_t c) { norm += weight(a, b, c); });
  const Extent3 e = patch.extent;
  for (int64_t z = 0; z < e.z; ++z)
    for (int64_t y = 0; y < e.y; ++y)
      for (int64_t x = 0; x < e.x; ++x) {
        double sum = 0;
        for_taps([&](int64_t a, int64_t b, int64_t c) {
          sum += weight(a, b, c) * patch.at(bounced(z + a, e.z), bounced(y + b, e.y), bounced(x + c, e.x));
        });
        out.at(z, y, x) = sum / norm;
      }
  return out;
}

TEST(Blur, IsTheGaussianOfADoubleLoop) {
  for (const Extent3& extent : {Extent3{7, 9, 19}, Extent3{1, 2, 3}, Extent3{5, 1, 8}}) {
    const double sigma[3] = {0.7, 1.0, 0.5};
    std::vector<float> values = random_patch(extent, 1);
    const Reference expected = blurred(Reference(extent, values), sigma);
    gaussian_blur_cpu(values.data(), extent, sigma);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected.values[i], 1e-5);
  }
}

TEST(Blur, NoSigmaLeavesAnAxisAlone) {
  const Extent3 extent{4, 5, 9};
  const std::vector<float> before = random_patch(extent, 2);
  std::vector<float> values = before;
  gaussian_blur_cpu(values.data(), extent, {0, 0, 0});
  EXPECT_EQ(values, before);
}

TEST(Gamma, PowerIsAccurateOverItsRange) {
  std::vector<float> base{0.0f, 1.0f, 0.5f, 1e-20f, 0.999999f};
  Random random(5, 0, 0);
  while (base.size() < 5003) base.push_back(static_cast<float>(std::pow(10, random.uniform(-6, 0))));
  for (const float exponent : {0.3f, 0.7f, 1.0f, 1.5f, 4.0f}) {
    std::vector<float> out(base.size());
    power_cpu(out.data(), base.data(), static_cast<int64_t>(base.size()), exponent);
    for (size_t i = 0; i < base.size(); ++i) {
      const double expected = std::pow(static_cast<double>(base[i]), static_cast<double>(exponent));
      ASSERT_NEAR(out[i], expected, 2e-6 * expected + 1e-30) << base[i] << "^" << exponent;
    }
  }
}

std::vector<double> gamma_in_double(const std::vector<float>& values, const GammaCurve& curve) {
  std::vector<double> x(values.begin(), values.end());
  const auto moments = [](const std::vector<double>& v) {
    double mean = 0, variance = 0;
    for (const double value : v) mean += value / static_cast<double>(v.size());
    for (const double value : v) variance += (value - mean) * (value - mean) / static_cast<double>(v.size());
    return std::pair(mean, std::sqrt(variance));
  };
  if (curve.inverted)
    for (double& value : x) value = -value;
  const auto [mean, deviation] = moments(x);
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const double from = *low, range = *high - *low;
  for (double& value : x) value = std::pow((value - from) / range, static_cast<double>(curve.exponent)) * range + from;
  if (curve.keep_moments) {
    const auto [new_mean, new_deviation] = moments(x);
    for (double& value : x) value = (value - new_mean) / new_deviation * deviation + mean;
  }
  if (curve.inverted)
    for (double& value : x) value = -value;
  return x;
}

TEST(Gamma, PlainInvertedAndWithMomentsKeptEqualADoubleLoop) {
  for (const bool inverted : {false, true})
    for (const bool keep : {false, true})
      for (const float exponent : {0.7f, 1.5f}) {
        std::vector<float> values = random_patch({5, 7, 11}, 3);
        const GammaCurve curve{exponent, inverted, keep};
        const std::vector<double> expected = gamma_in_double(values, curve);
        gamma_cpu(values.data(), static_cast<int64_t>(values.size()), curve);
        for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 2e-5) << inverted << keep;
      }
  std::vector<float> flat(20, 3.0f);
  gamma_cpu(flat.data(), 20, {2.0f, true, true});
  EXPECT_EQ(flat, std::vector<float>(20, 3.0f));
}

// Each voxel by itself: the nearest voxels of the coarse grid, then eight taps of it.
double coarse_value(Reference& patch, const Extent3& coarse, const Extent3& voxel) {
  const Extent3 extent = patch.extent;
  double sum = 0;
  for (int corner = 0; corner < 8; ++corner) {
    double weight = 1;
    Extent3 from;
    for (int axis = 0; axis < 3; ++axis) {
      const double ratio = static_cast<double>(extent[axis]) / static_cast<double>(coarse[axis]);
      const double at = std::max(0.0, (static_cast<double>(voxel[axis]) + 0.5) / ratio - 0.5);
      const int64_t low = static_cast<int64_t>(at);
      const bool upper = corner >> axis & 1;
      const int64_t index = std::min(coarse[axis] - 1, low + upper);
      weight *= upper ? at - static_cast<double>(low) : 1 - (at - static_cast<double>(low));
      from[axis] = std::min(extent[axis] - 1, static_cast<int64_t>((static_cast<double>(index) + 0.5) * ratio));
    }
    sum += weight * patch.at(from.z, from.y, from.x);
  }
  return sum;
}

TEST(LowResolution, IsNearestDownAndLinearUp) {
  const Extent3 extent{9, 12, 21}, coarse{6, 7, 13};
  std::vector<float> values = random_patch(extent, 4);
  Reference before(extent, values);
  low_resolution_cpu(values.data(), extent, coarse);
  size_t i = 0;
  for (int64_t z = 0; z < extent.z; ++z)
    for (int64_t y = 0; y < extent.y; ++y)
      for (int64_t x = 0; x < extent.x; ++x) ASSERT_NEAR(values[i++], coarse_value(before, coarse, {z, y, x}), 1e-5);
}

TEST(Moments, SurviveALargeMean) {
  std::vector<float> values;
  for (int i = 0; i < 100003; ++i) values.push_back(30000.0f + static_cast<float>(i % 5));
  const PatchMoments moments = moments_cpu(values.data(), static_cast<int64_t>(values.size()));
  EXPECT_EQ(moments.low, 30000);
  EXPECT_EQ(moments.high, 30004);
  EXPECT_NEAR(moments.mean, 30002, 1e-3);
  EXPECT_NEAR(moments.deviation, std::sqrt(2.0), 1e-4);
}

}  // namespace
}  // namespace vox
