#include "kernels/persistence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "kernels/persistence_matching.h"

namespace vox {
namespace {

using Interval = std::array<float, 2>;
using Intervals = std::array<std::vector<Interval>, 3>;  // of each dimension

// Cells have places on a grid of half steps: odd ones extend along the axis. Voxels are the places that extend along no
// axis (vertices), or along all (cubes).
struct Cells {
  Extent3 extent, half;
  bool vertices;

  Cells(const Extent3& of, Construction construction) : extent(of), vertices(construction == Construction::kVertices) {
    for (int axis = 0; axis < 3; ++axis) half[axis] = 2 * of[axis] + (vertices ? -1 : 1);
  }
  int64_t index(const Extent3& at) const { return (at.z * half.y + at.y) * half.x + at.x; }
  Extent3 at(int64_t i) const { return {i / (half.y * half.x), i / half.x % half.y, i % half.x}; }
  static int dimension(const Extent3& at) { return static_cast<int>(at.z % 2 + at.y % 2 + at.x % 2); }

  // The largest of the cell's voxels, or the smallest of the voxels that have the cell.
  float value(const Extent3& cell, const std::vector<float>& values) const {
    float found = std::numeric_limits<float>::quiet_NaN();
    for (int corner = 0; corner < 27; ++corner) {
      const Extent3 place = cell + Extent3{corner / 9 - 1, corner / 3 % 3 - 1, corner % 3 - 1};
      bool voxel = true;
      for (int axis = 0; axis < 3; ++axis) {
        voxel &= place[axis] >= 0 && place[axis] < half[axis] && place[axis] % 2 == (vertices ? 0 : 1);
        voxel &= (cell[axis] % 2 == (vertices ? 1 : 0)) || place[axis] == cell[axis];
      }
      if (!voxel) continue;
      const float here = values[static_cast<size_t>((place.z / 2 * extent.y + place.y / 2) * extent.x + place.x / 2)];
      found = std::isnan(found) ? here : vertices ? std::max(found, here) : std::min(found, here);
    }
    return found;
  }
  std::vector<int64_t> boundary(const Extent3& cell) const {
    std::vector<int64_t> faces;
    for (int axis = 0; axis < 3; ++axis) {
      if (cell[axis] % 2 == 0) continue;
      for (const int64_t step : {-1, 1}) {
        Extent3 face = cell;
        face[axis] += step;
        faces.push_back(index(face));
      }
    }
    return faces;
  }
};

// The textbook: sort all cells, reduce the whole boundary matrix column by column.
Intervals by_definition(const std::vector<float>& values, const Extent3& extent, Construction construction) {
  const Cells cells(extent, construction);
  struct Entry {
    float value;
    int dimension;
    int64_t cell;
    auto operator<=>(const Entry&) const = default;
  };
  std::vector<Entry> order;
  for (int64_t i = 0; i < cells.half.voxels(); ++i)
    order.push_back({cells.value(cells.at(i), values), Cells::dimension(cells.at(i)), i});
  std::sort(order.begin(), order.end());
  std::map<int64_t, size_t> place;
  for (size_t i = 0; i < order.size(); ++i) place[order[i].cell] = i;
  std::map<size_t, std::vector<size_t>> columns;  // by pivot; sorted
  std::vector<bool> paired(order.size(), false);
  Intervals found;
  for (size_t i = 0; i < order.size(); ++i) {
    std::vector<size_t> column;
    for (const int64_t face : cells.boundary(cells.at(order[i].cell))) column.push_back(place.at(face));
    std::sort(column.begin(), column.end());
    while (!column.empty() && columns.count(column.back())) {
      std::vector<size_t> sum;
      const std::vector<size_t>& other = columns.at(column.back());
      std::set_symmetric_difference(column.begin(), column.end(), other.begin(), other.end(), std::back_inserter(sum));
      column = sum;
    }
    if (column.empty()) continue;
    const Entry &birth = order[column.back()], &death = order[i];
    paired[column.back()] = paired[i] = true;
    if (birth.value != death.value) found[static_cast<size_t>(birth.dimension)].push_back({birth.value, death.value});
    columns[column.back()] = column;
  }
  for (size_t i = 0; i < order.size(); ++i)
    if (!paired[i])
      found.at(static_cast<size_t>(order[i].dimension))
          .push_back({order[i].value, std::numeric_limits<float>::infinity()});
  for (std::vector<Interval>& intervals : found) std::sort(intervals.begin(), intervals.end());
  return found;
}

std::vector<Interval> intervals_of(const std::vector<PersistencePair>& pairs, const std::vector<float>& values) {
  std::vector<Interval> found;
  for (const auto& [birth, death] : pairs)
    found.push_back({values.at(static_cast<size_t>(birth)), death == PersistencePair::kNever
                                                                ? std::numeric_limits<float>::infinity()
                                                                : values.at(static_cast<size_t>(death))});
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<float> random_values(const Extent3& extent, Random& random, bool ties) {
  std::vector<float> values(static_cast<size_t>(extent.voxels()));
  for (float& value : values) value = ties ? static_cast<float>(random.below(4)) - 1 : random.uniform() - 0.5f;
  return values;
}

TEST(Persistence, PairsAreThoseOfTheBoundaryMatrix) {
  std::array<size_t, 3> seen{};
  for (uint64_t sample = 0; sample < 40; ++sample) {
    Random random(61, sample, 0);
    const Extent3 extent{1 + random.below(7), 1 + random.below(7), 1 + random.below(7)};
    const std::vector<float> values = random_values(extent, random, sample % 2 == 0);
    for (const Construction construction : {Construction::kVertices, Construction::kCubes}) {
      const Intervals expected = by_definition(values, extent, construction);
      for (int k = 0; k < 3; ++k) {
        const auto pairs = persistence_pairs_cpu(values.data(), extent, k, {.construction = construction});
        ASSERT_EQ(intervals_of(pairs, values), expected[static_cast<size_t>(k)]) << sample << " " << extent << " " << k;
        seen[static_cast<size_t>(k)] += pairs.size();
      }
    }
  }
  for (const size_t pairs : seen) EXPECT_GT(pairs, 30u);  // else the cases show nothing
}

TEST(Persistence, AFallingLevelIsARisingOneOfTheNegative) {
  Random random(62, 0, 0);
  const Extent3 extent{7, 8, 9};
  const std::vector<float> values = random_values(extent, random, false);
  std::vector<float> negative;
  for (const float value : values) negative.push_back(-value);
  for (int k = 0; k < 3; ++k) {
    const auto falling = persistence_pairs_cpu(values.data(), extent, k, {.level = Level::kFalling});
    EXPECT_EQ(falling, persistence_pairs_cpu(negative.data(), extent, k)) << k;
    EXPECT_FALSE(falling.empty()) << k;
  }
}

// A bright shell around a dark core with a brighter ring in a corner, so that each feature's voxels are known.
TEST(Persistence, PairsNameTheirVoxels) {
  const Extent3 extent{5, 5, 9};
  std::vector<float> p(static_cast<size_t>(extent.voxels()), 0.1f);
  const auto at = [&](int64_t z, int64_t y, int64_t x) { return (z * extent.y + y) * extent.x + x; };
  for (int64_t z = 1; z < 4; ++z)
    for (int64_t y = 1; y < 4; ++y)
      for (int64_t x = 1; x < 4; ++x) p[static_cast<size_t>(at(z, y, x))] = 0.8f;
  p[static_cast<size_t>(at(2, 2, 2))] = 0.3f;  // the core
  p[static_cast<size_t>(at(2, 2, 3))] = 0.7f;  // the weakest voxel of the shell
  for (int64_t y = 1; y < 4; ++y)
    for (int64_t x = 5; x < 8; ++x) p[static_cast<size_t>(at(2, y, x))] = 0.9f;
  p[static_cast<size_t>(at(2, 2, 6))] = 0.2f;   // the hole of the ring
  p[static_cast<size_t>(at(2, 3, 6))] = 0.75f;  // the weakest voxel of the ring
  p[static_cast<size_t>(at(2, 1, 4))] = 0.15f;  // between both
  const auto pairs = [&](int k) { return persistence_pairs_cpu(p.data(), extent, k, {.level = Level::kFalling}); };
  using Pairs = std::vector<PersistencePair>;
  EXPECT_EQ(pairs(0), (Pairs{{at(2, 1, 5), PersistencePair::kNever}, {at(1, 1, 1), at(2, 1, 4)}}));
  EXPECT_EQ(pairs(1), (Pairs{{at(2, 3, 6), at(2, 2, 6)}}));
  EXPECT_EQ(pairs(2), (Pairs{{at(2, 2, 3), at(2, 2, 2)}}));
}

TEST(Persistence, OfNothingAndOfAFlatMap) {
  EXPECT_TRUE(persistence_pairs_cpu(nullptr, {0, 4, 4}, 0).empty());
  const std::vector<float> flat(60, 0.0f);
  EXPECT_EQ(persistence_pairs_cpu(flat.data(), {3, 4, 5}, 0).size(), 1u);
  for (int k = 1; k < 3; ++k) EXPECT_TRUE(persistence_pairs_cpu(flat.data(), {3, 4, 5}, k).empty());
}

// Cells of vertices in the order of a map: by their last voxel, then by dimension, then by their lowest voxel and
// direction.
struct CellOrder {
  Cells cells;
  std::vector<int64_t> last, rank;  // of each cell: its last voxel, its place in the order

  CellOrder(const std::vector<float>& values, const Extent3& extent) : cells(extent, Construction::kVertices) {
    using Key = std::tuple<float, int64_t, int, int64_t, int, int64_t>;
    std::vector<Key> keys;
    for (int64_t i = 0; i < cells.half.voxels(); ++i) {
      const Extent3 at = cells.at(i);
      std::pair<float, int64_t> highest{-1e9f, 0};
      for (int corner = 0; corner < 8; ++corner) {
        const Extent3 step{corner >> 2 & at.z % 2, corner >> 1 & at.y % 2, corner & at.x % 2};
        const Extent3 voxel{at.z / 2 + step.z, at.y / 2 + step.y, at.x / 2 + step.x};
        const int64_t index = (voxel.z * extent.y + voxel.y) * extent.x + voxel.x;
        highest = std::max(highest, {values[static_cast<size_t>(index)], index});
      }
      const int dimension = Cells::dimension(at);
      int direction = 0;  // of an edge, normal of a square
      for (int axis = 0; axis < 3; ++axis)
        if ((dimension == 1 && at[axis] % 2 == 1) || (dimension == 2 && at[axis] % 2 == 0)) direction = axis;
      last.push_back(highest.second);
      const int64_t lowest = (at.z / 2 * extent.y + at.y / 2) * extent.x + at.x / 2;
      keys.push_back({highest.first, highest.second, dimension, lowest, direction, i});
    }
    std::sort(keys.begin(), keys.end());
    rank.resize(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) rank[static_cast<size_t>(std::get<5>(keys[i]))] = static_cast<int64_t>(i);
  }
};

// Pairs of cells, by the cell that dies: columns in the order of `deaths`, rows in that of `births`.
std::map<int64_t, int64_t> pairs_by_reduction(const CellOrder& births, const CellOrder& deaths, int dimension) {
  std::vector<std::pair<int64_t, int64_t>> columns_in_order;
  for (int64_t i = 0; i < deaths.cells.half.voxels(); ++i)
    if (Cells::dimension(deaths.cells.at(i)) == dimension + 1)
      columns_in_order.push_back({deaths.rank[static_cast<size_t>(i)], i});
  std::sort(columns_in_order.begin(), columns_in_order.end());
  std::map<int64_t, std::set<int64_t>> columns;  // by pivot; rows as ranks
  std::map<int64_t, int64_t> cell_of, found;
  for (int64_t i = 0; i < births.cells.half.voxels(); ++i) cell_of[births.rank[static_cast<size_t>(i)]] = i;
  for (const auto& [place, cell] : columns_in_order) {
    std::set<int64_t> column;
    const auto flip = [&](int64_t row) {
      if (!column.erase(row)) column.insert(row);
    };
    for (const int64_t face : births.cells.boundary(births.cells.at(cell)))
      flip(births.rank[static_cast<size_t>(face)]);
    while (!column.empty() && columns.count(*column.rbegin()))
      for (const int64_t row : std::set<int64_t>(columns.at(*column.rbegin()))) flip(row);
    if (column.empty()) continue;
    found[cell] = cell_of.at(*column.rbegin());
    columns[*column.rbegin()] = column;
  }
  return found;
}

using MatchedVoxels = std::array<int64_t, 4>;  // birth and death of one, birth and death of the other

struct Expected {
  std::multiset<MatchedVoxels> matches;
  bool certain = true;  // no voxel ends or begins two features at once, whose order would be a matter of taste
};

Expected matches_by_definition(const std::vector<float>& a, const std::vector<float>& b, const Extent3& extent, int k) {
  std::vector<float> either(a.size());
  for (size_t i = 0; i < a.size(); ++i) either[i] = std::min(a[i], b[i]);
  const CellOrder order_c(either, extent);
  Expected expected;
  std::array<std::map<int64_t, std::array<int64_t, 2>>, 2> by_death;  // in the union -> voxels of the pair
  for (const size_t side : {0, 1}) {
    const std::vector<float>& values = side == 0 ? a : b;
    const CellOrder order(values, extent);
    std::map<int64_t, int64_t> death_of;
    std::set<int64_t> voxels;
    const auto last = [&](const CellOrder& of, int64_t cell) { return of.last[static_cast<size_t>(cell)]; };
    for (const auto& [death, birth] : pairs_by_reduction(order, order, k)) {
      death_of[birth] = death;
      const auto value = [&](int64_t cell) { return values[static_cast<size_t>(last(order, cell))]; };
      if (value(birth) != value(death)) expected.certain &= k == 0 || voxels.insert(last(order, birth)).second;
    }
    voxels.clear();
    for (const auto& [death, birth] : pairs_by_reduction(order, order_c, k)) {
      const int64_t born = last(order, birth), died = last(order_c, death);
      if (values[static_cast<size_t>(born)] >= either[static_cast<size_t>(died)]) continue;
      by_death[side][death] = {born, last(order, death_of.at(birth))};
      expected.certain &= k == 2 || voxels.insert(died).second;
    }
  }
  for (const auto& [death, pair] : by_death[0])
    if (const auto other = by_death[1].find(death); other != by_death[1].end())
      expected.matches.insert({pair[0], pair[1], other->second[0], other->second[1]});
  return expected;
}

TEST(PersistenceMatching, IsThatOfTheDefinition) {
  std::array<std::array<size_t, 3>, 2> seen{};
  for (uint64_t sample = 0; sample < 200; ++sample) {
    Random random(63, sample, 0);
    const Extent3 extent{2 + random.below(5), 3 + random.below(4), 3 + random.below(4)};
    const std::vector<float> a = random_values(extent, random, false);
    std::vector<float> b = random_values(extent, random, false);
    for (size_t i = 0; i < a.size(); ++i) b[i] = 0.8f * a[i] + 0.2f * b[i];
    const bool mask = sample % 2 == 1;  // where only places tell which of two voxels comes first
    const float level = 0.5f * random.uniform() - 0.1f;
    if (mask) std::transform(b.begin(), b.end(), b.begin(), [&](float value) { return value < level ? 0.0f : 1.0f; });
    for (int k = 0; k < 3; ++k) {
      const PersistenceMatching found = match_persistence_cpu(a.data(), b.data(), extent, k);
      EXPECT_EQ(intervals_of(found.a, a), intervals_of(persistence_pairs_cpu(a.data(), extent, k), a));
      std::multiset<MatchedVoxels> matches;
      for (const auto& [of_a, of_b] : found.matches) {
        const PersistencePair &x = found.a[static_cast<size_t>(of_a)], &y = found.b[static_cast<size_t>(of_b)];
        if (x.death != PersistencePair::kNever) matches.insert({x.birth, x.death, y.birth, y.death});
      }
      const Expected expected = matches_by_definition(a, b, extent, k);
      if (!expected.certain) continue;
      ASSERT_EQ(matches, expected.matches) << sample << " " << extent << " dimension " << k;
      seen[mask][static_cast<size_t>(k)] += matches.size();
    }
  }
  for (const size_t mask : {0, 1})  // else the cases show nothing; so small a mask hardly ever has a cavity
    for (size_t k = 0; k < 3 - mask; ++k) EXPECT_GT(seen[mask][k], 10u) << mask << " dimension " << k;
}

TEST(PersistenceMatching, AMapMatchesItself) {
  Random random(64, 0, 0);
  const Extent3 extent{9, 10, 11};
  const std::vector<float> values = random_values(extent, random, false);
  for (int k = 0; k < 3; ++k) {
    const PersistenceMatching found = match_persistence_cpu(values.data(), values.data(), extent, k, Level::kFalling);
    EXPECT_EQ(found.matches.size(), found.a.size());
    for (const auto& [a, b] : found.matches)
      EXPECT_EQ(found.a[static_cast<size_t>(a)], found.b[static_cast<size_t>(b)]) << k;
  }
}

}  // namespace
}  // namespace vox
