#include "kernels/betti_matching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <vector>

#include "base/random.h"
#include "kernels/betti.h"

namespace vox {
namespace {

using Mask = std::vector<uint8_t>;
using Column = std::bitset<512>;

struct Cell {
  std::vector<int64_t> voxels;  // sorted
};

// Every edge or square of the grid, by (lowest voxel, direction or normal).
std::vector<Cell> cells(const Extent3& extent, bool squares) {
  const int64_t step[3] = {extent.y * extent.x, extent.x, 1};
  std::vector<Cell> found;
  for (int64_t i = 0; i < extent.voxels(); ++i) {
    const Extent3 at{i / step[0], i / extent.x % extent.y, i % extent.x};
    for (int d = 0; d < 3; ++d) {
      const int a = d == 0 ? 1 : 0, b = d == 2 ? 1 : 2;
      const auto room = [&](int axis) { return at[axis] + 1 < extent[axis]; };
      if (!squares && room(d)) found.push_back({{i, i + step[d]}});
      if (squares && room(a) && room(b)) found.push_back({{i, i + step[b], i + step[a], i + step[a] + step[b]}});
    }
  }
  return found;
}

bool inside(const Cell& cell, const Mask& mask) {
  return std::all_of(cell.voxels.begin(), cell.voxels.end(),
                     [&](int64_t i) { return mask[static_cast<size_t>(i)] != 0; });
}

// Squares that end a tunnel of `mask`, by the textbook: reduce every column with the mask's edges as the first rows; a
// pivot among those.
std::vector<bool> ends_of(const Mask& mask, const Mask& either, const Extent3& extent) {
  std::vector<Cell> edges = cells(extent, false);
  const std::vector<Cell> squares = cells(extent, true);
  std::stable_partition(edges.begin(), edges.end(), [&](const Cell& edge) { return inside(edge, mask); });
  const int64_t in_mask =
      std::count_if(edges.begin(), edges.end(), [&](const Cell& edge) { return inside(edge, mask); });
  std::map<std::vector<int64_t>, size_t> row;
  for (size_t i = 0; i < edges.size(); ++i) row[edges[i].voxels] = i;
  std::vector<size_t> order(squares.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_partition(order.begin(), order.end(), [&](size_t i) { return inside(squares[i], either); });
  std::map<int, Column> reduced;
  std::vector<bool> ends(squares.size(), false);
  const auto pivot_of = [](const Column& column) {
    for (int i = static_cast<int>(column.size()) - 1; i >= 0; --i)
      if (column[static_cast<size_t>(i)]) return i;
    return -1;
  };
  for (const size_t square : order) {
    const std::vector<int64_t>& v = squares[square].voxels;
    Column column;
    for (const auto& [from, to] : {std::pair(v[0], v[1]), {v[0], v[2]}, {v[1], v[3]}, {v[2], v[3]}})
      column.flip(row.at({from, to}));
    int pivot = pivot_of(column);
    while (pivot >= 0 && reduced.count(pivot)) {
      column ^= reduced.at(pivot);
      pivot = pivot_of(column);
    }
    if (pivot < 0) continue;
    reduced[pivot] = column;
    ends[square] = pivot < in_mask;
  }
  return ends;
}

int64_t tunnels_by_definition(const Mask& p, const Mask& g, const Mask& either, const Extent3& extent) {
  const std::vector<bool> of_p = ends_of(p, either, extent), of_g = ends_of(g, either, extent);
  const std::vector<Cell> squares = cells(extent, true);
  int64_t matches = 0;
  for (size_t i = 0; i < squares.size(); ++i) matches += of_p[i] && of_g[i] && !inside(squares[i], either);
  return matches;
}

int64_t components_by_definition(const Mask& p, const Mask& g, const Mask& either, const Extent3& extent) {
  std::vector<int64_t> set(either.size());
  for (size_t i = 0; i < set.size(); ++i) set[i] = static_cast<int64_t>(i);
  const auto holds = [&](const Mask& mask, int64_t which) {
    for (size_t i = 0; i < set.size(); ++i)
      if (set[i] == which && mask[i]) return true;
    return false;
  };
  int64_t matches = 0;
  for (const bool foreground : {true, false}) {
    for (const Cell& edge : cells(extent, false)) {
      const int64_t a = set[static_cast<size_t>(edge.voxels[0])], b = set[static_cast<size_t>(edge.voxels[1])];
      if (inside(edge, either) != foreground || a == b) continue;
      matches += !foreground && holds(p, a) && holds(p, b) && holds(g, a) && holds(g, b);
      std::replace(set.begin(), set.end(), b, a);
    }
  }
  return matches;
}

Mask random_mask(const Extent3& extent, double foreground, Random& random) {
  Mask mask(static_cast<size_t>(extent.voxels()));
  for (uint8_t& voxel : mask) voxel = random.chance(foreground) ? 7 : 0;
  return mask;
}

TEST(BettiMatching, ComponentsAndTunnelsAreThoseOfTheDefinition) {
  int64_t tunnels = 0, components = 0;
  for (uint64_t sample = 0; sample < 60; ++sample) {
    Random random(41, sample, 0);
    const Extent3 extent{1 + random.below(5), 2 + random.below(4), 2 + random.below(5)};
    Mask p = random_mask(extent, random.uniform(0.3, 0.9), random), g = p;
    for (uint8_t& voxel : g)
      if (random.chance(0.2)) voxel = random.chance(0.6);
    Mask either(p.size());
    for (size_t i = 0; i < p.size(); ++i) either[i] = p[i] || g[i];
    const BettiMatches found = match_betti_cpu(p.data(), g.data(), extent);
    ASSERT_EQ(found.m[0], components_by_definition(p, g, either, extent)) << sample << " " << extent;
    ASSERT_EQ(found.m[1], tunnels_by_definition(p, g, either, extent)) << sample << " " << extent;
    components += found.m[0];
    tunnels += found.m[1];
  }
  EXPECT_GT(components, 20);  // else the cases show nothing
  EXPECT_GT(tunnels, 20);
}

TEST(BettiMatching, AMaskMatchesItself) {
  Random random(42, 0, 0);
  const Extent3 extent{14, 15, 16};
  const Mask mask = random_mask(extent, 0.96, random);
  const BettiMatches found = match_betti_cpu(mask.data(), mask.data(), extent);
  EXPECT_GT(found.p[1], 0);
  EXPECT_GT(found.p[2], 0);
  EXPECT_EQ(found.p, found.g);
  EXPECT_EQ(found.p, found.m);
}

TEST(Betti, OfShapesThatAreKnown) {
  const Extent3 extent{7, 7, 7};
  const auto shape = [&](auto contains) {
    Mask mask;
    for (int64_t z = 0; z < 7; ++z)
      for (int64_t y = 0; y < 7; ++y)
        for (int64_t x = 0; x < 7; ++x) mask.push_back(contains(std::abs(z - 3), std::abs(y - 3), std::abs(x - 3)));
    return betti_numbers_cpu(mask.data(), extent);
  };
  using Numbers = std::array<int64_t, 3>;
  EXPECT_EQ(shape([](int64_t, int64_t, int64_t) { return false; }), (Numbers{0, 0, 0}));
  EXPECT_EQ(shape([](int64_t, int64_t, int64_t) { return true; }), (Numbers{1, 0, 0}));
  EXPECT_EQ(shape([](int64_t z, int64_t y, int64_t x) { return std::max({z, y, x}) == 2; }), (Numbers{1, 0, 1}));
  EXPECT_EQ(shape([](int64_t z, int64_t y, int64_t x) { return z == 0 && std::max(y, x) == 2; }), (Numbers{1, 1, 0}));
  // Two bars through a solid cross: four openings of one cavity in the surface make three tunnels.
  EXPECT_EQ(shape([](int64_t z, int64_t y, int64_t x) {
              return std::max({z, y, x}) == 2 && !(z == 0 && y == 0) && !(z == 0 && x == 0);
            }),
            (Numbers{1, 3, 0}));
  // Diagonal neighbours do not touch, and a background that touches diagonally does.
  EXPECT_EQ(shape([](int64_t z, int64_t y, int64_t x) { return (z + y + x) % 2 == 0; })[2], 0);
}

}  // namespace
}  // namespace vox
