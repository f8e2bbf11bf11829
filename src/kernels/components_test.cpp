#include "kernels/components.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "base/random.h"

namespace vox {
namespace {

// By definition: floods from each voxel in order.
template <class T>
std::vector<uint32_t> flood(const std::vector<T>& values, const Extent3& extent, Connectivity connectivity) {
  const int64_t most_steps = connectivity == Connectivity::kFaces ? 1 : connectivity == Connectivity::kEdges ? 2 : 3;
  std::vector<uint32_t> labels(values.size(), 0);
  uint32_t count = 0;
  for (int64_t first = 0; first < extent.voxels(); ++first) {
    if (values[static_cast<size_t>(first)] == 0 || labels[static_cast<size_t>(first)] != 0) continue;
    std::vector<int64_t> stack{first};
    labels[static_cast<size_t>(first)] = ++count;
    while (!stack.empty()) {
      const int64_t i = stack.back();
      stack.pop_back();
      const Extent3 at{i / (extent.y * extent.x), i / extent.x % extent.y, i % extent.x};
      for (int64_t dz = -1; dz <= 1; ++dz)
        for (int64_t dy = -1; dy <= 1; ++dy)
          for (int64_t dx = -1; dx <= 1; ++dx) {
            const Extent3 to{at.z + dz, at.y + dy, at.x + dx};
            if (std::abs(dz) + std::abs(dy) + std::abs(dx) > most_steps) continue;
            if (!whole(extent).contains({to, to + Extent3{1, 1, 1}})) continue;
            const int64_t j = (to.z * extent.y + to.y) * extent.x + to.x;
            if (values[static_cast<size_t>(j)] != values[static_cast<size_t>(first)]) continue;
            if (labels[static_cast<size_t>(j)] != 0) continue;
            labels[static_cast<size_t>(j)] = count;
            stack.push_back(j);
          }
    }
  }
  return labels;
}

constexpr Connectivity kAll[] = {Connectivity::kFaces, Connectivity::kEdges, Connectivity::kCorners};

Extent3 random_extent(Random& random) {
  return {1 + random.below(7), 1 + random.below(9), 1 + random.below(140)};
}

TEST(Components, OfAMaskAreThoseOfAFlood) {
  for (uint64_t sample = 0; sample < 40; ++sample) {
    Random random(21, sample, 0);
    const Extent3 extent = random_extent(random);
    const double foreground = random.uniform(0, 1);
    std::vector<uint8_t> mask(static_cast<size_t>(extent.voxels()));
    for (uint8_t& voxel : mask) voxel = random.chance(foreground);
    for (const Connectivity connectivity : kAll) {
      std::vector<uint32_t> labels(mask.size(), 77);
      const int64_t count = components_cpu(labels.data(), mask.data(), extent, connectivity);
      const std::vector<uint32_t> expected = flood(mask, extent, connectivity);
      ASSERT_EQ(labels, expected) << extent << " connectivity " << static_cast<int>(connectivity);
      ASSERT_EQ(count, expected.empty() ? 0 : *std::max_element(expected.begin(), expected.end()));
    }
  }
}

template <class T>
void check_labels(uint64_t seed, uint32_t largest) {
  for (uint64_t sample = 0; sample < 10; ++sample) {
    Random random(seed, sample, 0);
    const Extent3 extent = random_extent(random);
    std::vector<T> values(static_cast<size_t>(extent.voxels()));
    const int64_t kinds = 2 + random.below(3);
    for (T& value : values) {
      const int64_t kind = random.below(kinds);
      value = kind == 0 ? T{0} : static_cast<T>(largest - static_cast<uint32_t>(kind));
    }
    for (const Connectivity connectivity : kAll) {
      std::vector<uint32_t> labels(values.size());
      label_components_cpu(labels.data(), values.data(), extent, connectivity);
      ASSERT_EQ(labels, flood(values, extent, connectivity)) << extent << " " << static_cast<int>(connectivity);
    }
  }
}

TEST(Components, OfLabelsAreThoseOfAFlood) {
  check_labels<uint8_t>(22, 255);
  check_labels<uint16_t>(23, 65535);
  check_labels<uint32_t>(24, 4000000000u);
}

TEST(Components, OfTheBackgroundAreThoseOfTheInvertedMask) {
  Random random(25, 0, 0);
  const Extent3 extent{5, 6, 70};
  std::vector<uint8_t> mask(static_cast<size_t>(extent.voxels())), inverted(mask.size());
  for (size_t i = 0; i < mask.size(); ++i) inverted[i] = !(mask[i] = random.chance(0.7));
  const RunComponents a = run_components(mask.data(), extent, Connectivity::kCorners, Part::kBackground);
  const RunComponents b = run_components(inverted.data(), extent, Connectivity::kCorners);
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.rows, b.rows);
}

TEST(Components, AnEmptyVolumeHasNone) {
  EXPECT_EQ(components_cpu(nullptr, nullptr, {0, 0, 0}, Connectivity::kFaces), 0);
  const std::vector<uint8_t> mask(24, 0);
  std::vector<uint32_t> labels(24, 9);
  EXPECT_EQ(components_cpu(labels.data(), mask.data(), {2, 3, 4}, Connectivity::kCorners), 0);
  EXPECT_EQ(labels, std::vector<uint32_t>(24, 0));
}

}  // namespace
}  // namespace vox
