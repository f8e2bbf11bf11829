#include "kernels/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace vox {
namespace {

TEST(Noise, IsTheDefinitionBitForBitFromAnyStart) {
  const Random random(123456789012345ull, 987654321098ull, 0x80000400u);
  for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1000003}, (int64_t{1} << 32) - 5000}) {
    std::vector<float> noisy(4999, 0.25f);
    add_noise_cpu(noisy.data(), static_cast<int64_t>(noisy.size()), 0.1f, random, first);
    for (size_t i = 0; i < noisy.size(); ++i) {
      const uint32_t draw = static_cast<uint32_t>(first + static_cast<int64_t>(i));
      const float expected = std::fma(0.1f, normal_from_bits(random.bits_at(draw)), 0.25f);
      ASSERT_EQ(std::memcmp(&noisy[i], &expected, sizeof expected), 0) << first << " + " << i;
    }
  }
}

TEST(Noise, DoesNotDependOnHowThePatchIsCut) {
  const Random random(1, 2, 3);
  std::vector<float> whole(1000), parts(1000);
  add_noise_cpu(whole.data(), 1000, 1.0f, random, 40);
  for (int64_t i = 0; i < 1000; i += 37)
    add_noise_cpu(parts.data() + i, std::min<int64_t>(37, 1000 - i), 1.0f, random, 40 + i);
  EXPECT_EQ(whole, parts);
}

}  // namespace
}  // namespace vox
