// Truth: Betti numbers before and after; a voxel is simple where its neighbours have the homology of a point; the
// derivative of the chain pushed forward in loops; the noise read off the probability at which a voxel flips.
#include "kernels/soft_thinning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/drawn_seed.h"
#include "kernels/betti.h"

namespace vox {
namespace {

using Mask = std::vector<uint8_t>;

int64_t voxel_of(const Extent3& e, int64_t z, int64_t y, int64_t x) {
  return (z * e.y + y) * e.x + x;
}

bool holds(const Extent3& e, int64_t z, int64_t y, int64_t x) {
  return z >= 0 && z < e.z && y >= 0 && y < e.y && x >= 0 && x < e.x;
}

// Components (through corners), tunnels, cavities: by those of the background, which connects through faces.
std::array<int64_t, 3> betti_by_corners(const Mask& mask, const Extent3& e) {
  const Extent3 framed{e.z + 2, e.y + 2, e.x + 2};
  Mask background(static_cast<size_t>(framed.voxels()), 1);
  for (int64_t z = 0; z < e.z; ++z)
    for (int64_t y = 0; y < e.y; ++y)
      for (int64_t x = 0; x < e.x; ++x)
        background[static_cast<size_t>(voxel_of(framed, z + 1, y + 1, x + 1))] =
            mask[static_cast<size_t>(voxel_of(e, z, y, x))] ? 0 : 1;
  const std::array<int64_t, 3> betti = betti_numbers_cpu(background.data(), framed);
  return {betti[2], betti[1], betti[0] - 1};
}

Mask blobs(const Extent3& e, std::mt19937& random) {
  std::vector<double> sum(static_cast<size_t>(e.voxels()), 0.0);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < e.voxels(); ++i) {
    const double value = normal(random);
    const int64_t z = i / (e.y * e.x), y = i / e.x % e.y, x = i % e.x;
    for (int64_t n = 0; n < 27; ++n) {
      const int64_t a = z + n / 9 - 1, b = y + n / 3 % 3 - 1, c = x + n % 3 - 1;
      if (holds(e, a, b, c)) sum[static_cast<size_t>(voxel_of(e, a, b, c))] += value;
    }
  }
  Mask mask(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) mask[i] = sum[i] > -1 ? 1 : 0;
  return mask;
}

Mask kept(const std::vector<int16_t>& taken) {
  Mask mask(taken.size());
  for (size_t i = 0; i < taken.size(); ++i) mask[i] = taken[i] == kNeverTaken ? 1 : 0;
  return mask;
}

Mask thinned(const Mask& mask, const Extent3& e, int iterations) {
  std::vector<int16_t> taken(mask.size());
  thin_by_subfields_cpu(taken.data(), mask.data(), e, iterations);
  return kept(taken);
}

TEST(SoftThinning, KeepsBettiNumbersAndLeavesNothingToTake) {
  const unsigned seed = drawn_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int sample = 0; sample < 20; ++sample) {
    const auto size = [&] { return static_cast<int64_t>(5 + random() % 14); };
    const Extent3 e{size(), size(), size()};
    const Mask mask = blobs(e, random);
    const Mask little = thinned(mask, e, 1), all = thinned(mask, e, 60);
    EXPECT_EQ(betti_by_corners(little, e), betti_by_corners(mask, e));
    EXPECT_EQ(betti_by_corners(all, e), betti_by_corners(mask, e));
    EXPECT_EQ(thinned(all, e, 1), all);
    for (size_t i = 0; i < mask.size(); ++i) EXPECT_LE(all[i], mask[i]);
  }
}

TEST(SoftThinning, OfABarIsALineInItsMiddle) {
  const Extent3 e{11, 11, 40};
  Mask bar(static_cast<size_t>(e.voxels()), 0);
  for (int64_t i = 0; i < e.voxels(); ++i) {
    const int64_t z = i / (e.y * e.x) - 5, y = i / e.x % e.y - 5, x = i % e.x;
    bar[static_cast<size_t>(i)] = std::abs(z) <= 2 && std::abs(y) <= 2 && x >= 3 && x < 37 ? 1 : 0;
  }
  const auto count = [&](const Mask& mask) { return std::count(mask.begin(), mask.end(), 1); };
  const Mask line = thinned(bar, e, 5);
  EXPECT_GE(count(line), 24);
  EXPECT_LE(count(line), 50);
  for (int64_t i = 0; i < e.voxels(); ++i) {  // in the middle of its length it is in the middle of the bar
    const int64_t z = i / (e.y * e.x) - 5, y = i / e.x % e.y - 5, x = i % e.x;
    if (line[static_cast<size_t>(i)] && x > 10 && x < 30) {
      EXPECT_LE(std::max(std::abs(z), std::abs(y)), 1);
    }
  }
}

struct Chain {  // the rule written out
  Extent3 e;
  Mask now, first;

  static uint8_t at(const Mask& mask, const Extent3& e, int64_t z, int64_t y, int64_t x) {
    return holds(e, z, y, x) ? mask[static_cast<size_t>(voxel_of(e, z, y, x))] : 0;
  }
  bool goes(int64_t z, int64_t y, int64_t x) const {
    Mask around(27);
    int count = 0;
    for (int64_t n = 0; n < 27; ++n) {
      if (n == 13) continue;
      around[static_cast<size_t>(n)] = at(now, e, z + n / 9 - 1, y + n / 3 % 3 - 1, x + n % 3 - 1);
      count += around[static_cast<size_t>(n)];
    }
    const bool border = !(at(first, e, z - 1, y, x) && at(first, e, z + 1, y, x) && at(first, e, z, y - 1, x) &&
                          at(first, e, z, y + 1, x) && at(first, e, z, y, x - 1) && at(first, e, z, y, x + 1));
    return border && count != 1 && betti_by_corners(around, {3, 3, 3}) == std::array<int64_t, 3>{1, 0, 0};
  }
};

// What the multilinear rule makes of a direction in which its neighbours change.
double pushed(const Chain& chain, int64_t z, int64_t y, int64_t x, const std::vector<double>& now,
              const std::vector<double>& first) {
  double sum = 0;
  for (int64_t n = 0; n < 27; ++n) {
    const int64_t a = z + n / 9 - 1, b = y + n / 3 % 3 - 1, c = x + n % 3 - 1;
    if (n == 13 || !holds(chain.e, a, b, c)) continue;
    const auto other = static_cast<size_t>(voxel_of(chain.e, a, b, c));
    for (const bool of_first : {false, true}) {
      const double by = (of_first ? first : now)[other];
      if (by == 0) continue;
      Chain with = chain, without = chain;
      (of_first ? with.first : with.now)[other] = 1;
      (of_first ? without.first : without.now)[other] = 0;
      sum += by * (int{with.goes(z, y, x)} - int{without.goes(z, y, x)});
    }
  }
  return sum;
}

TEST(SoftThinning, GradientIsThatOfTheChainOfMultiplications) {
  const unsigned seed = drawn_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (int sample = 0; sample < 12; ++sample) {
    const Extent3 e{4, 5, 6};
    constexpr int kIterations = 2;
    const Mask mask = blobs(e, random);
    std::vector<double> direction(mask.size(), 0.0), outer(mask.size());
    for (int i = 0; i < 6; ++i) direction[random() % direction.size()] = normal(random);
    for (double& value : outer) value = normal(random);
    Chain chain{e, mask, mask};
    std::vector<double> change = direction, change_first;
    for (int sub = 0; sub < 8 * kIterations; ++sub) {
      if (sub % 8 == 0) chain.first = chain.now, change_first = change;
      Mask next = chain.now;
      std::vector<double> next_change = change;
      for (int64_t z = sub % 8 / 4; z < e.z; z += 2)
        for (int64_t y = sub / 2 % 2; y < e.y; y += 2)
          for (int64_t x = sub % 2; x < e.x; x += 2) {
            const auto at = static_cast<size_t>(voxel_of(e, z, y, x));
            const double s = chain.goes(z, y, x) ? 1 : 0;
            next_change[at] = change[at] * (1 - s);
            if (chain.now[at]) next_change[at] -= pushed(chain, z, y, x, change, change_first);
            if (s == 1) next[at] = 0;
          }
      chain.now = next;
      change = next_change;
    }
    std::vector<int16_t> taken(mask.size());
    thin_by_subfields_cpu(taken.data(), mask.data(), e, kIterations);
    EXPECT_EQ(kept(taken), chain.now);
    double expected = 0, found = 0;
    for (size_t i = 0; i < outer.size(); ++i) expected += outer[i] * change[i];
    thin_by_subfields_backward_cpu(outer.data(), taken.data(), e, kIterations);
    for (size_t i = 0; i < outer.size(); ++i) found += outer[i] * direction[i];
    EXPECT_NEAR(found, expected, 1e-9 * (1 + std::abs(expected)));
  }
}

double logit(double p) {
  return std::log(p / (1 - p));
}

TEST(SoftThinning, RoundingCountsAVoxelAsOftenAsItIsProbable) {
  const Extent3 e{20, 30, 40};
  const auto voxels = static_cast<size_t>(e.voxels());
  const SoftThinningOptions options{.iterations = 0, .noise = 1, .seed = drawn_seed(), .volume = 3};
  std::vector<int16_t> taken(voxels);
  std::vector<double> out(voxels), in(voxels, 0.3);
  soft_thinning_cpu(out.data(), taken.data(), in.data(), e, options);
  double sum = 0;
  for (const double value : out) sum += value;
  EXPECT_NEAR(sum / static_cast<double>(voxels), 0.3, 0.02) << options.seed;
  // Bisection finds where each voxel flips: its logit is minus the noise.
  std::vector<double> low(voxels, 1e-5), high(voxels, 1 - 1e-5), middle(voxels);
  for (int round = 0; round < 40; ++round) {
    for (size_t i = 0; i < voxels; ++i) middle[i] = (low[i] + high[i]) / 2;
    soft_thinning_cpu(out.data(), taken.data(), middle.data(), e, options);
    for (size_t i = 0; i < voxels; ++i) (out[i] == 1 ? high : low)[i] = middle[i];
  }
  std::vector<double> grad(voxels), ones(voxels, 1.0);
  soft_thinning_backward_cpu(grad.data(), ones.data(), taken.data(), in.data(), e, options);
  for (size_t i = 0; i < voxels; ++i) {
    if (middle[i] < 1e-4 || middle[i] > 1 - 1e-4) continue;
    const auto smooth = [&](double p) { return 1 / (1 + std::exp(-(logit(p) - logit(middle[i])))); };
    EXPECT_NEAR(grad[i], (smooth(0.3 + 1e-5) - smooth(0.3 - 1e-5)) / 2e-5, 1e-4 * (1 + grad[i])) << options.seed;
  }
}

}  // namespace
}  // namespace vox
