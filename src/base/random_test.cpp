#include "base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace vox {
namespace {

TEST(Random, PhiloxGivesTheKnownAnswersOfItsAuthors) {  // Random123, kat_vectors, philox4x32 with 10 rounds
  struct Known {
    uint64_t key, high, low;
    std::array<uint32_t, 4> out;
  };
  const Known answers[] = {{0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                           {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                           {0x299f31d0a4093822ull,
                            0x0370734413198a2eull,
                            0x85a308d3243f6a88ull,
                            {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const Known& known : answers) {
    const Philox4 got = philox(known.key, known.high, known.low);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got.v[i], known.out[i]);
  }
}

struct Quantile {
  uint32_t bits;
  double value;  // of (bits + 1/2) / 2^32: 30 digits, Newton on the distribution function
};
const Quantile kQuantiles[] = {{0u, -6.3379577545537893},
                               {1u, -6.1664295178197502},
                               {2u, -6.085104545783031},
                               {3u, -6.0309670191182521},
                               {10u, -5.8508917606424578},
                               {100u, -5.4630625543895387},
                               {1000u, -5.0398511259687115},
                               {12345u, -4.5354227620904281},
                               {100000u, -4.0722240098541677},
                               {1000000u, -3.4997689887583814},
                               {5000000u, -3.0448057102763749},
                               {10000000u, -2.8298754286853602},
                               {20000000u, -2.600336968939876},
                               {50000000u, -2.2687577002444724},
                               {104153088u, -1.9729605135929772},
                               {200000000u, -1.6791015320988107},
                               {400000000u, -1.3217106672869891},
                               {800000000u, -0.89174611459031539},
                               {1200000000u, -0.58463444014786163},
                               {1600000000u, -0.32516253775230842},
                               {2000000000u, -0.086180949004489688},
                               {2100000000u, -0.027715948434100024},
                               {2147000000u, -0.00028226629704076491},
                               {2147483000u, -3.7789386879271163e-7},
                               {2147483647u, -2.9180993729166227e-10}};

TEST(Random, NormalVariatesMatchTheQuantilesInBothTails) {
  for (const Quantile& known : kQuantiles) {
    const double tolerance = 5e-7 * std::abs(known.value);
    EXPECT_NEAR(normal_from_bits(known.bits), known.value, tolerance) << known.bits;
    EXPECT_EQ(normal_from_bits(~known.bits), -normal_from_bits(known.bits)) << known.bits;
  }
}

// The distribution function of the variate is its probability, everywhere: erfc is the independent truth.
TEST(Random, NormalVariatesInvertTheDistributionFunction) {
  double worst = 0;
  for (uint64_t bits = 7; bits < (1ull << 31); bits += 100003) {
    const double z = normal_from_bits(static_cast<uint32_t>(bits));
    const double p = (static_cast<double>(bits) + 0.5) * 0x1p-32;
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
    const double error_of_z = (0.5 * std::erfc(-z / std::sqrt(2.0)) - p) / density;
    worst = std::max(worst, std::abs(error_of_z / z));
  }
  EXPECT_LT(worst, 5e-7);
}

TEST(Random, NormalVariatesHaveTheMomentsOfTheNormalDistribution) {
  constexpr int kDraws = 1000000;
  Random random(11, 5, 3);
  double sum[5] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double z = random.normal();
    double power = 1;
    for (int k = 1; k < 5; ++k) sum[k] += power *= z;
  }
  // Five standard errors each: variances of z, z^2, z^3, z^4 are 1, 2, 15, 96.
  const double expected[5] = {0, 0, 1, 0, 3}, variance[5] = {0, 1, 2, 15, 96};
  for (int k = 1; k < 5; ++k) EXPECT_NEAR(sum[k] / kDraws, expected[k], 5 * std::sqrt(variance[k] / kDraws)) << k;
}

TEST(Random, BelowIsUniformAndStaysBelow) {
  for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{1000}}) {
    constexpr int64_t kPerBin = 200;
    std::vector<double> hits(static_cast<size_t>(count));
    Random random(3, 1, 4);
    for (int64_t i = 0; i < count * kPerBin; ++i) {
      const int64_t value = random.below(count);
      ASSERT_GE(value, 0);
      ASSERT_LT(value, count);
      hits[static_cast<size_t>(value)] += 1;
    }
    double chi_square = 0;
    for (const double hit : hits) chi_square += (hit - kPerBin) * (hit - kPerBin) / kPerBin;
    const double freedom = static_cast<double>(count - 1);
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom) + 1e-9) << count;
  }
  Random random(3, 1, 5);
  int upper = 0;
  for (int i = 0; i < 10000; ++i) upper += random.below(int64_t{1} << 32) >= (int64_t{1} << 31);
  EXPECT_NEAR(upper, 5000, 250);
}

TEST(Random, DrawsDependOnTheirNumberAlone) {
  Random in_order(9, 8, 7);
  for (uint32_t draw = 0; draw < 100; ++draw) EXPECT_EQ(in_order.bits(), Random(9, 8, 7).bits_at(draw));
  EXPECT_NE(Random(9, 8, 7).bits_at(0), Random(9, 8, 7).per_voxel().bits_at(0));
}

}  // namespace
}  // namespace vox
