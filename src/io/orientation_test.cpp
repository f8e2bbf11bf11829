#include "io/orientation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace vox {
namespace {

Volume counted_volume(const Extent3& extent, const Affine& affine) {
  VolumeInfo info;
  info.dtype = DType::kUInt16;
  info.channels = 2;
  info.extent = extent;
  info.affine = affine;
  info.spacing = Spacing3{3, 2, 1};
  Volume volume = allocate_volume(info);
  for (int64_t i = 0; i < info.voxels(); ++i) volume.data.as<uint16_t>()[i] = static_cast<uint16_t>(i);
  return volume;
}

std::array<double, 3> world(const Affine& m, int64_t x, int64_t y, int64_t z) {
  std::array<double, 3> place{};
  for (size_t row = 0; row < 3; ++row)
    place[row] = m[row][0] * static_cast<double>(x) + m[row][1] * static_cast<double>(y) +
                 m[row][2] * static_cast<double>(z) + m[row][3];
  return place;
}

// All 48 ways to lay three axes along those of the world.
std::vector<Affine> axis_aligned_affines() {
  std::vector<Affine> affines;
  std::array<size_t, 3> order{0, 1, 2};
  do {
    for (unsigned signs = 0; signs < 8; ++signs) {
      Affine affine{};
      for (size_t column = 0; column < 3; ++column)
        affine[order[column]][column] = ((signs >> column & 1u) != 0 ? -1.0 : 1.0) * static_cast<double>(column + 1);
      for (size_t row = 0; row < 3; ++row) affine[row][3] = 10 * static_cast<double>(row) - 7;
      affines.push_back(affine);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return affines;
}

TEST(Orientation, EveryVoxelKeepsItsPlaceInTheWorldAndAxesBecomeRas) {
  const Extent3 extent{3, 4, 5};
  for (const Affine& affine : axis_aligned_affines()) {
    const Volume volume = counted_volume(extent, affine);
    const Volume ras = apply(volume, to_ras(affine));
    ASSERT_EQ(axis_codes(*ras.info.affine), "RAS") << axis_codes(affine);
    const Extent3 turned = ras.info.extent;
    int64_t index = 0;
    for (int64_t z = 0; z < turned.z; ++z) {
      for (int64_t y = 0; y < turned.y; ++y) {
        for (int64_t x = 0; x < turned.x; ++x) {
          const int64_t source = ras.as<uint16_t>()[index++];  // the first channel counts its own voxels
          const auto expected =
              world(affine, source % extent.x, source / extent.x % extent.y, source / (extent.x * extent.y));
          ASSERT_EQ(world(*ras.info.affine, x, y, z), expected) << axis_codes(affine);
        }
      }
    }
  }
}

TEST(Orientation, TheInverseRestoresVoxelsSpacingAndAffine) {
  for (const Affine& affine : axis_aligned_affines()) {
    const Volume volume = counted_volume({3, 4, 5}, affine);
    const Reorientation how = to_ras(affine);
    const Volume back = apply(apply(volume, how), inverse(how));
    ASSERT_EQ(back.info.extent, volume.info.extent);
    EXPECT_EQ(back.info.spacing, volume.info.spacing);
    EXPECT_EQ(back.info.affine, volume.info.affine);
    EXPECT_EQ(std::memcmp(back.data.data(), volume.data.data(), static_cast<size_t>(volume.info.bytes())), 0);
  }
}

}  // namespace
}  // namespace vox
