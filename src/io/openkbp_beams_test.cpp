// Fields of beams against rays that are cut with a plane in three dimensions, one target voxel at a time.
#include "io/openkbp_beams.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <iostream>
#include <random>
#include <vector>

#include "base/random.h"
#include "io/openkbp_csv.h"

namespace vox {
namespace {

using Point = std::array<double, 3>;

double dot(const Point& a, const Point& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

Point place_of(int64_t voxel, const Spacing3& spacing) {
  return {static_cast<double>(voxel / (kOpenKbpSide * kOpenKbpSide)) * spacing[0],
          static_cast<double>(voxel / kOpenKbpSide % kOpenKbpSide) * spacing[1],
          static_cast<double>(voxel % kOpenKbpSide) * spacing[2]};
}

// Where the ray from the source through a place meets the plane through the centre, from the centre.
Point on_plane(const Point& place, const Point& centre, const Point& towards_source) {
  Point source, ray;
  for (size_t i = 0; i < 3; ++i) {
    source[i] = centre[i] + kOpenKbpSourceMm * towards_source[i];
    ray[i] = place[i] - source[i];
  }
  const double length = -kOpenKbpSourceMm / dot(ray, towards_source);
  Point met;
  for (size_t i = 0; i < 3; ++i) met[i] = source[i] + length * ray[i] - centre[i];
  return met;
}

class OpenKbpBeams : public testing::Test {
 protected:
  OpenKbpBeams() { std::cout << "seed " << seed_ << '\n'; }
  std::vector<uint8_t> counted(const std::vector<int64_t>& voxels, const Spacing3& spacing) {
    std::vector<uint16_t> target(kOpenKbpVoxels);
    for (const int64_t voxel : voxels) target[static_cast<size_t>(voxel)] = 2;
    std::vector<uint8_t> count(kOpenKbpVoxels, 77);
    count_openkbp_beams(target.data(), spacing, count.data());
    return count;
  }

  const uint64_t seed_ = std::random_device{}();
  Random random_{seed_, 0, 0};
};

TEST_F(OpenKbpBeams, RaysThatPassATargetClosely) {
  const auto side = [&] { return 1.5 + 3 * random_.uniform(); };
  const Spacing3 spacing{side(), side(), side()};
  std::vector<int64_t> target;
  Point centre{};
  for (int i = 0; i < 12; ++i) {
    target.push_back(random_.below(kOpenKbpVoxels));
    for (size_t axis = 0; axis < 3; ++axis) centre[axis] += place_of(target.back(), spacing)[axis] / 12;
  }
  const std::vector<uint8_t> count = counted(target, spacing);
  int64_t reached = 0, exact = 0;
  for (int i = 0; i < 20000; ++i) {
    const int64_t voxel = random_.below(kOpenKbpVoxels);
    int surely = 0, perhaps = 0;
    for (int beam = 0; beam < 9; ++beam) {
      const double angle = beam * 40 * std::acos(-1.0) / 180;
      const Point source{-std::cos(angle), std::sin(angle), 0}, across{source[1], -source[0], 0};
      const Point here = on_plane(place_of(voxel, spacing), centre, source);
      double nearest = 1e9;
      for (const int64_t other : target) {
        const Point there = on_plane(place_of(other, spacing), centre, source);
        const double aside = std::abs(dot(here, across) - dot(there, across)) / spacing[1];
        nearest = std::min(nearest, std::max(aside, std::abs(here[2] - there[2]) / spacing[2]));
      }
      surely += nearest < kOpenKbpBeamMargin - 1e-6;  // cells are whole numbers of voxels
      perhaps += nearest < kOpenKbpBeamMargin + 1 + 1e-6;
    }
    ASSERT_GE(count[static_cast<size_t>(voxel)], surely) << "voxel " << voxel;
    ASSERT_LE(count[static_cast<size_t>(voxel)], perhaps) << "voxel " << voxel;
    reached += surely > 0;
    exact += surely == perhaps;
  }
  EXPECT_GT(reached, 100);
  EXPECT_GT(exact, 10000);
}

TEST_F(OpenKbpBeams, AllMeetInTheTargetAndTheFirstComesFromTheFront) {
  const auto at = [](int64_t z, int64_t y, int64_t x) { return (z * kOpenKbpSide + y) * kOpenKbpSide + x; };
  const std::vector<uint8_t> count = counted({at(64, 60, 70)}, {4, 4, 2.5});
  EXPECT_EQ(count[static_cast<size_t>(at(64, 60, 70))], kOpenKbpBeams);
  EXPECT_EQ(count[static_cast<size_t>(at(4, 60, 70))], 1);
  EXPECT_EQ(count[static_cast<size_t>(at(124, 60, 70))], 1);
  EXPECT_EQ(count[static_cast<size_t>(at(4, 63, 70))], 0);  // its field grows on the way to the back
  EXPECT_EQ(count[static_cast<size_t>(at(124, 63, 70))], 1);
  EXPECT_EQ(count[static_cast<size_t>(at(64, 60, 80))], 0);  // the beams lie in one plane
}

TEST_F(OpenKbpBeams, WithoutATargetThereAreNoneAndHugeVoxelsAreNoTrouble) {
  for (const uint8_t beams : counted({}, {4, 4, 2.5})) ASSERT_EQ(beams, 0);
  const std::vector<uint8_t> count = counted({0, kOpenKbpVoxels - 1}, {9e5, 1e-3, 5e5});
  for (const uint8_t beams : count) ASSERT_LE(beams, kOpenKbpBeams);
}

}  // namespace
}  // namespace vox
