#include "kernels/thinning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "kernels/betti.h"
#include "kernels/components.h"
#include "kernels/morphology.h"

namespace vox {
namespace {

using Mask = std::vector<uint8_t>;

Mask random_mask(const Extent3& extent, double foreground, uint64_t sample) {
  Random random(51, sample, 0);
  Mask mask(static_cast<size_t>(extent.voxels()));
  for (uint8_t& voxel : mask) voxel = random.chance(foreground) ? 9 : 0;
  return mask;
}

// Balls of random places and sizes: bodies, with noise on their surfaces.
Mask random_bodies(const Extent3& extent, uint64_t sample) {
  Random random(52, sample, 0);
  Mask mask(static_cast<size_t>(extent.voxels()), 0);
  for (int ball = 0; ball < 6; ++ball) {
    const Extent3 centre{random.below(extent.z), random.below(extent.y), random.below(extent.x)};
    const double radius = random.uniform(1, 6);
    for (int64_t i = 0; i < extent.voxels(); ++i) {
      const Extent3 off = Extent3{i / (extent.y * extent.x), i / extent.x % extent.y, i % extent.x} - centre;
      const double distance = static_cast<double>(off.z * off.z + off.y * off.y + off.x * off.x);
      if (distance < radius * radius + random.uniform(-2, 2)) mask[static_cast<size_t>(i)] = 1;
    }
  }
  return mask;
}

struct Reference {  // Lee, Kashyap & Chu 1994, as the paper has it: no tables, everything looked at anew
  Mask mask;
  Extent3 extent;

  bool at(int64_t z, int64_t y, int64_t x) const {
    return z >= 0 && y >= 0 && x >= 0 && z < extent.z && y < extent.y && x < extent.x &&
           mask[static_cast<size_t>((z * extent.y + y) * extent.x + x)] != 0;
  }
  Mask around(const Extent3& p) const {
    Mask cube;
    for (int64_t z = -1; z <= 1; ++z)
      for (int64_t y = -1; y <= 1; ++y)
        for (int64_t x = -1; x <= 1; ++x) cube.push_back(at(p.z + z, p.y + y, p.x + x));
    return cube;
  }
  // Of a union of closed cubes: its vertices, edges, faces and cubes have places at half steps.
  static int64_t euler(const Mask& cube) {
    std::set<std::array<int, 3>> cells;
    for (int i = 0; i < 27; ++i)
      for (int j = 0; cube[static_cast<size_t>(i)] && j < 27; ++j)
        cells.insert({2 * (i / 9) + j / 9, 2 * (i / 3 % 3) + j / 3 % 3, 2 * (i % 3) + j % 3});
    int64_t sum = 0;
    for (const auto& [z, y, x] : cells) sum += (z + y + x) % 2 == 0 ? 1 : -1;
    return sum;
  }
  static bool connected(Mask cube) {
    cube[13] = 0;
    std::vector<uint32_t> labels(27);
    return components_cpu(labels.data(), cube.data(), {3, 3, 3}, Connectivity::kCorners) < 2;
  }
  static bool may_go(Mask cube) {
    if (std::count(cube.begin(), cube.end(), 1) == 2 || !connected(cube)) return false;
    const int64_t before = euler(cube);
    cube[13] = 0;
    return euler(cube) == before;
  }
  bool take_away(const Extent3& side) {
    std::vector<Extent3> candidates;
    for (int64_t z = 0; z < extent.z; ++z)
      for (int64_t y = 0; y < extent.y; ++y)
        for (int64_t x = 0; x < extent.x; ++x)
          if (at(z, y, x) && !at(z + side.z, y + side.y, x + side.x) && may_go(around({z, y, x})))
            candidates.push_back({z, y, x});
    bool changed = false;
    for (const Extent3& p : candidates) {
      if (!connected(around(p))) continue;
      mask[static_cast<size_t>((p.z * extent.y + p.y) * extent.x + p.x)] = 0;
      changed = true;
    }
    return changed;
  }
  void thin() {
    for (uint8_t& voxel : mask) voxel = voxel != 0;
    std::vector<Extent3> sides{{0, -1, 0}, {0, 1, 0}, {0, 0, 1}, {0, 0, -1}};
    if (extent.z > 1) sides.insert(sides.end(), {{1, 0, 0}, {-1, 0, 0}});
    for (bool changed = true; changed;) {
      changed = false;
      for (const Extent3& side : sides) changed |= take_away(side);
    }
  }
};

TEST(Thinning3D, IsThatOfThePaper) {
  for (uint64_t sample = 0; sample < 24; ++sample) {
    Random random(53, sample, 0);
    const Extent3 extent{1 + random.below(9), 1 + random.below(12), 1 + random.below(14)};
    Mask mask = sample % 2 == 0 ? random_bodies(extent, sample) : random_mask(extent, random.uniform(0.1, 0.9), sample);
    Reference expected{mask, extent};
    expected.thin();
    thin_3d_cpu(mask.data(), mask.data(), extent);
    ASSERT_EQ(mask, expected.mask) << sample << " " << extent;
  }
}

TEST(Thinning3D, ThreadsChangeNothing) {
  ThreadPool pool(3);
  const Extent3 extent{20, 30, 70};
  const Mask mask = random_bodies(extent, 7);
  Mask alone(mask.size()), shared(mask.size());
  thin_3d_cpu(alone.data(), mask.data(), extent);
  thin_3d_cpu(shared.data(), mask.data(), extent, &pool);
  EXPECT_EQ(alone, shared);
  EXPECT_LT(std::count(alone.begin(), alone.end(), 1), std::count(mask.begin(), mask.end(), 1) / 4);
}

Mask slice_where(int64_t height, int64_t width, bool (*inside)(int64_t y, int64_t x)) {
  Mask mask;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) mask.push_back(inside(y, x));
  return mask;
}

TEST(Thinning2D, ABarBecomesALineAndARingStaysOne) {
  const Extent3 extent{1, 40, 130};
  Mask bar = slice_where(40, 130, [](int64_t y, int64_t x) { return y >= 18 && y < 23 && x >= 3 && x < 127; });
  thin_2d_cpu(bar.data(), bar.data(), extent);
  for (int64_t x = 8; x < 120; ++x) {  // also where words of 64 pixels meet
    int64_t in_column = 0;
    for (int64_t y = 0; y < 40; ++y) in_column += bar[static_cast<size_t>(y * 130 + x)];
    ASSERT_EQ(in_column, 1) << x;
    ASSERT_EQ(bar[static_cast<size_t>(20 * 130 + x)], 1) << x;
  }
  Mask ring = slice_where(40, 130, [](int64_t y, int64_t x) {
    const int64_t square = (y - 20) * (y - 20) + (x - 64) * (x - 64);
    return square < 17 * 17 && square > 9 * 9;
  });
  thin_2d_cpu(ring.data(), ring.data(), extent);
  const RunComponents line = run_components(ring.data(), extent, Connectivity::kCorners);
  const RunComponents sides = run_components(ring.data(), extent, Connectivity::kFaces, Part::kBackground);
  EXPECT_EQ(line.count, 1);
  EXPECT_EQ(sides.count, 2);
  EXPECT_LT(std::count(ring.begin(), ring.end(), 1), 90);
}

TEST(Thinning2D, SlicesAreThinnedByThemselvesAndASecondTimeNothingGoes) {
  const Extent3 extent{7, 33, 67};
  const Mask mask = random_bodies(extent, 3);
  Mask thin(mask.size());
  ThreadPool pool(2);
  thin_2d_cpu(thin.data(), mask.data(), extent, &pool);
  const auto slice = static_cast<int64_t>(33 * 67);
  Mask alone(static_cast<size_t>(slice));
  thin_2d_cpu(alone.data(), mask.data() + 4 * slice, {1, 33, 67});
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), thin.begin() + 4 * slice));
  Mask again(mask.size());
  thin_2d_cpu(again.data(), thin.data(), extent);
  EXPECT_EQ(again, thin);
  for (size_t i = 0; i < mask.size(); ++i) ASSERT_LE(thin[i], mask[i]);
}

TEST(Morphology, DilationAndClosingAreThoseOfTheirDefinition) {
  for (uint64_t sample = 0; sample < 10; ++sample) {
    Random random(54, sample, 0);
    const Extent3 extent{1 + random.below(6), 1 + random.below(9), 1 + random.below(140)};
    const Mask mask = random_mask(extent, 0.1, sample);
    const auto filtered = [&](const Mask& in, bool grow) {  // the largest, or smallest, of the cross within the volume
      Mask out(in.size());
      for (int64_t i = 0; i < extent.voxels(); ++i) {
        const Extent3 at{i / (extent.y * extent.x), i / extent.x % extent.y, i % extent.x};
        bool value = in[static_cast<size_t>(i)] != 0;
        for (int axis = 0; axis < 3; ++axis) {
          for (const int64_t step : {-1, 1}) {
            Extent3 near = at;
            near[axis] += step;
            if (near[axis] < 0 || near[axis] >= extent[axis]) continue;
            const bool other = in[static_cast<size_t>((near.z * extent.y + near.y) * extent.x + near.x)] != 0;
            value = grow ? value || other : value && other;
          }
        }
        out[static_cast<size_t>(i)] = value;
      }
      return out;
    };
    Mask out(mask.size());
    dilate_cpu(out.data(), mask.data(), extent, 2);
    ASSERT_EQ(out, filtered(filtered(mask, true), true)) << extent;
    close_cpu(out.data(), mask.data(), extent);
    ASSERT_EQ(out, filtered(filtered(mask, true), false)) << extent;
  }
}

}  // namespace
}  // namespace vox
