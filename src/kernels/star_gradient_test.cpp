// Truth: Euler's formula and the components of the graph that edges form by their squares, found by brute force.
#include "kernels/star_gradient.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "base/random.h"
#include "kernels/union_find.h"

namespace vox {
namespace {

struct Offset {
  int at[3];
};
Offset offset_of(int bit) {
  return {{bit / 9 - 1, bit / 3 % 3 - 1, bit % 3 - 1}};
}
int bit_at(const Offset& o) {
  return (o.at[0] + 1) * 9 + (o.at[1] + 1) * 3 + o.at[2] + 1;
}
int dimension_of(int bit) {
  const Offset o = offset_of(bit);
  return std::abs(o.at[0]) + std::abs(o.at[1]) + std::abs(o.at[2]);
}
// Faces of a cell that have the voxel too, but for the voxel itself.
std::vector<int> faces_of(int bit) {
  std::vector<int> faces;
  for (int axis = 0; axis < 3; ++axis) {
    Offset o = offset_of(bit);
    if (std::exchange(o.at[axis], 0) != 0 && bit_at(o) != 13) faces.push_back(bit_at(o));
  }
  return faces;
}

// The cells whose voxels all come before, by dimension.
std::array<std::vector<int>, 4> star_of(uint32_t earlier) {
  std::array<std::vector<int>, 4> cells;
  for (int bit = 0; bit < 27; ++bit) {
    bool present = bit != 13;
    for (int voxel = 0; voxel < 27; ++voxel) {
      bool part = voxel != 13;
      for (int axis = 0; axis < 3; ++axis)
        part = part && (offset_of(voxel).at[axis] == 0 || offset_of(voxel).at[axis] == offset_of(bit).at[axis]);
      present = present && (!part || (earlier >> voxel & 1) != 0);
    }
    if (present) cells[static_cast<size_t>(dimension_of(bit))].push_back(bit);
  }
  return cells;
}

int components_of(const std::array<std::vector<int>, 4>& cells) {
  UnionFind joined(27);
  int count = static_cast<int>(cells[1].size());
  for (const int square : cells[2]) {
    const std::vector<int> edges = faces_of(square);
    const uint32_t a = joined.find(static_cast<uint32_t>(edges.at(0))),
                   b = joined.find(static_cast<uint32_t>(edges.at(1)));
    if (a != b) --count;
    joined.unite(a, b);
  }
  return count;
}

// Uses up each cell once; returns how many edges, squares and cubes are critical.
std::array<int, 3> check_pairs(uint32_t earlier, const std::array<std::vector<int>, 4>& cells) {
  const star::Gradient gradient = star::gradient_of(earlier);
  std::vector<int> used(27, 0);
  std::array<int, 3> critical{};
  int with_voxel = 0;
  for (int d = 0; d < star::kDirections; ++d) {
    const int edge = std::countr_zero(star::bit_of(d));
    uint32_t partner = gradient.partner(d);
    if (partner == star::kAbsent) continue;
    ++used[static_cast<size_t>(edge)];
    with_voxel += partner == star::kWithVoxel;
    critical[0] += partner == star::kCritical;
    if (partner < 6) ++used[static_cast<size_t>(edge + std::countr_zero(star::bit_of(static_cast<int>(partner))) - 13)];
    for (int step = 0; partner < 6; ++step) {
      if (step > 6) return {-1, -1, -1};
      partner = gradient.partner(static_cast<int>(partner));
    }
  }
  EXPECT_EQ(with_voxel, cells[1].empty() ? 0 : 1);
  for (const int cube : cells[3]) {
    int ways = gradient.cube == 1u << cube ? 1 : 0;
    critical[2] += ways;
    for (int normal = 0; normal < 3; ++normal) {
      if ((gradient.through[normal] >> cube & 1) == 0) continue;
      Offset square = offset_of(cube);
      square.at[normal] = 0;
      ++ways;
      ++used[static_cast<size_t>(bit_at(square))];
    }
    EXPECT_EQ(ways, 1);
    used[static_cast<size_t>(cube)] += ways;
  }
  for (int bit = 0; bit < 27; ++bit)
    if (gradient.squares >> bit & 1) ++critical[1], ++used[static_cast<size_t>(bit)];
  std::vector<int> all(27, 0);
  for (const std::vector<int>& of : cells)
    for (const int bit : of) ++all[static_cast<size_t>(bit)];
  EXPECT_EQ(used, all);
  return critical;
}

// Nobody is led in a circle from cube to cube.
bool cubes_end(const star::Gradient& gradient) {
  for (int cube : {0, 2, 6, 8, 18, 20, 24, 26})
    for (int step = 0;; ++step) {
      int normal = 0;
      while (normal < 3 && (gradient.through[normal] >> cube & 1) == 0) ++normal;
      if (normal == 3) break;
      if (step > 8) return false;
      Offset beyond = offset_of(cube);
      beyond.at[normal] *= -1;
      cube = bit_at(beyond);
    }
  return true;
}

TEST(StarGradient, LeavesWhatTheEarlierNeighboursForm) {
  Random random(81, 0, 0);
  std::array<int64_t, 3> seen{};
  for (int sample = 0; sample < 6000; ++sample) {
    const double share = random.uniform();
    uint32_t earlier = sample == 0 ? neighbourhood::kCorners : 0;
    for (int bit = 0; bit < 27; ++bit)
      if (bit != 13 && random.chance(share)) earlier |= 1u << bit;
    const auto cells = star_of(earlier);
    const auto count = [&](size_t dimension) { return static_cast<int>(cells[dimension].size()); };
    const int components = components_of(cells), closed = count(3) == 8 ? 1 : 0;
    const int loops = components + closed - (count(1) - count(2) + count(3));
    const std::array<int, 3> critical = check_pairs(earlier, cells);
    ASSERT_EQ(critical, (std::array<int, 3>{std::max(components - 1, 0), loops, closed})) << std::oct << earlier;
    ASSERT_TRUE(cubes_end(star::gradient_of(earlier))) << std::oct << earlier;
    for (size_t i = 0; i < 3; ++i) seen[i] += critical[i];
  }
  for (const int64_t cells : seen) EXPECT_GT(cells, 0);  // else the samples show nothing
}

}  // namespace
}  // namespace vox
