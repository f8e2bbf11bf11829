// What a plan must be whatever its arithmetic; tests/test_openkbp_plan.py compares the numbers with SciPy's.
#include "io/openkbp_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <vector>

#include "base/drawn_seed.h"
#include "base/random.h"
#include "io/openkbp.h"
#include "io/openkbp_csv.h"

namespace vox {
namespace {

constexpr uint16_t kBrainstem = 1, kCord = 1 << 1, kParotid = 1 << 2, kTarget70 = 1 << 9;
constexpr uint16_t kMayGetDose = 1 << kOpenKbpDoseMaskBit;

int64_t at(int64_t z, int64_t y, int64_t x) {
  return (z * kOpenKbpSide + y) * kOpenKbpSide + x;
}

// A ball of water about a place, all of which may get dose.
struct Body {
  std::vector<int16_t> ct = std::vector<int16_t>(kOpenKbpVoxels);
  std::vector<uint16_t> bits = std::vector<uint16_t>(kOpenKbpVoxels);
  Spacing3 spacing{4, 4, 3};

  Body(Extent3 middle, int64_t radius) {
    mark(middle, radius, kMayGetDose);
    for (size_t i = 0; i < ct.size(); ++i) ct[i] = bits[i] != 0 ? 1000 : 0;
  }
  void mark(Extent3 middle, int64_t radius, uint16_t value) {
    for (int64_t z = -radius; z <= radius; ++z)
      for (int64_t y = -radius; y <= radius; ++y)
        for (int64_t x = -radius; x <= radius; ++x)
          if (z * z + y * y + x * x <= radius * radius)
            bits[static_cast<size_t>(at(middle.z + z, middle.y + y, middle.x + x))] |= value;
  }
  std::vector<float> plan() const {
    std::vector<float> dose(kOpenKbpVoxels, -1);
    plan_openkbp_dose({ct.data(), bits.data(), spacing}, dose.data());
    return dose;
  }
  double mean(const std::vector<float>& dose, uint16_t structure) const {
    double sum = 0, voxels = 0;
    for (size_t i = 0; i < dose.size(); ++i) {
      if (!(bits[i] & structure)) continue;
      sum += dose[i];
      ++voxels;
    }
    return sum / voxels;
  }
};

TEST(OpenKbpPlan, TargetsGetWhatIsPrescribedAndAnOrganLessThanItsMirrorImage) {
  Body body({60, 62, 64}, 18);
  body.mark({60, 62, 64}, 5, kTarget70);
  body.mark({60, 72, 64}, 3, kParotid);
  const std::vector<float> dose = body.plan();
  EXPECT_NEAR(body.mean(dose, kTarget70), 70, 7);
  Body mirrored = body;
  mirrored.mark({60, 52, 64}, 3, 1);
  EXPECT_LT(body.mean(dose, kParotid), 0.8 * mirrored.mean(dose, 1));
}

TEST(OpenKbpPlan, TheNeckBehindACordIsSparedInAllSlicesAndBehindABrainstemWhereThereIsNoCord) {
  Body body({60, 62, 64}, 18);
  body.mark({60, 62, 64}, 7, kTarget70);
  Body behind = body;
  behind.mark({73, 62, 60}, 2, kParotid);  // only to measure there; no slice of it has the cord
  const double unspared = behind.mean(body.plan(), kParotid);
  for (const uint16_t organ : {kCord, kBrainstem}) {
    Body spared = body;
    spared.mark({69, 62, 65}, 1, organ);
    EXPECT_LT(behind.mean(spared.plan(), kParotid), 0.8 * unspared) << organ;
  }
}

TEST(OpenKbpPlan, AMovedBodyGetsTheMovedDose) {
  const uint64_t seed = drawn_seed();
  std::cout << "seed " << seed << '\n';
  Random random(seed, 0, 0);
  const auto even = [&](int64_t count) { return 2 * random.below(count); };  // others are looked at on a grid of two
  const Extent3 here{40, 44, 50}, moved{here.z + even(15), here.y + even(15), here.x + even(15)};
  const Extent3 target{random.below(9) - 4, random.below(9) - 4, random.below(9) - 4};
  const auto plan_at = [&](const Extent3& middle) {
    Body body(middle, 14);
    body.mark({middle.z + target.z, middle.y + target.y, middle.x + target.x}, 4, kTarget70);
    return body.plan();
  };
  const std::vector<float> one = plan_at(here), other = plan_at(moved);
  for (int64_t z = -14; z <= 14; ++z)
    for (int64_t y = -14; y <= 14; ++y)
      for (int64_t x = -14; x <= 14; ++x)
        ASSERT_NEAR(one[static_cast<size_t>(at(here.z + z, here.y + y, here.x + x))],
                    other[static_cast<size_t>(at(moved.z + z, moved.y + y, moved.x + x))], 0.5);
}

TEST(OpenKbpPlan, NothingOutsideTheMaskNorWithoutATargetAndHugeVoxelsAreNoTrouble) {
  Body body({60, 62, 64}, 10);
  for (const float dose : body.plan()) ASSERT_EQ(dose, 0);
  body.mark({60, 62, 64}, 3, kTarget70);
  const std::vector<float> dose = body.plan();
  for (size_t i = 0; i < dose.size(); ++i) ASSERT_TRUE(body.bits[i] != 0 || dose[i] == 0) << i;
  body.spacing = {9e5, 1e-3, 5e5};
  for (const float value : body.plan()) ASSERT_TRUE(std::isfinite(value) && value >= 0);
}

}  // namespace
}  // namespace vox
