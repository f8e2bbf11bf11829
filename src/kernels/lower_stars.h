// The order of a grid's cells where voxels are vertices: every edge, square and cube belongs to the last of its voxels
// and comes after it (lower stars).
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "kernels/persistence_parts.h"
#include "kernels/radix_sort.h"

namespace vox {

class LowerStars {
 public:
  explicit LowerStars(const OrderedGrid& grid) : grid_(grid) {
    const Extent3& extent = grid.extent;
    VOX_CHECK(3 * grid.places() < (int64_t{1} << 31), "tunnels are found in volumes of at most 7*10^8 voxels, not ",
              extent);
    std::vector<uint64_t> sorted;
    sorted.reserve(static_cast<size_t>(extent.voxels()));
    for (int64_t z = 0; z < extent.z; ++z)
      for (int64_t y = 0; y < extent.y; ++y)
        for (int64_t place = grid.at(z, y, 0), end = place + extent.x; place < end; ++place)
          sorted.push_back(grid.sortable(place, static_cast<uint32_t>(place)));
    sort_by_upper_half(sorted);
    rank_.assign(static_cast<size_t>(grid_.places()), kBorder);
    order_.reserve(sorted.size());
    for (const uint64_t entry : sorted) {
      rank_[static_cast<uint32_t>(entry)] = static_cast<uint32_t>(order_.size());
      order_.push_back(static_cast<uint32_t>(entry));
    }
    step_ = {static_cast<uint32_t>(grid_.slice), static_cast<uint32_t>(grid_.row), 1};
  }

  const OrderedGrid& grid() const { return grid_; }
  const std::vector<uint32_t>& order() const { return order_; }
  uint32_t step(uint32_t axis) const { return step_[axis]; }
  size_t cells() const { return static_cast<size_t>(3 * grid_.places()); }  // as many edges as squares
  uint32_t key(uint32_t edge) const { return std::max(rank_[edge / 3], rank_[edge / 3 + step_[edge % 3]]); }
  uint32_t last_voxel(uint32_t edge) const { return order_[key(edge)]; }

  std::array<uint32_t, 4> edges_of(uint32_t square) const {
    const uint32_t place = square / 3, normal = square % 3, a = normal == 0 ? 1 : 0, b = normal == 2 ? 1 : 2;
    return {place * 3 + a, place * 3 + b, (place + step_[a]) * 3 + b, (place + step_[b]) * 3 + a};
  }
  bool is_cube(uint32_t place) const {  // by its lowest and its highest voxel
    return rank_[place] != kBorder && rank_[place + step_[0] + step_[1] + step_[2]] != kBorder;
  }

  // Of a voxel's lower star, in order: visit(edge, its other voxel).
  template <class Visit>
  void for_each_edge(uint32_t voxel, Visit visit) const {
    for (uint32_t d = 0; d < 3; ++d)
      if (rank_[voxel - step_[d]] < rank_[voxel]) visit((voxel - step_[d]) * 3 + d, voxel - step_[d]);
    for (uint32_t d = 0; d < 3; ++d)
      if (rank_[voxel + step_[d]] < rank_[voxel]) visit(voxel * 3 + d, voxel + step_[d]);
  }
  struct Squares {
    int count = 0;
    std::array<uint32_t, 12> square;
  };
  Squares squares_of(uint32_t voxel) const {
    Squares found;
    for (const auto& [back, normal] : kSquaresAround) {
      const uint32_t place = voxel - (back & 1 ? step_[0] : 0) - (back & 2 ? step_[1] : 0) - (back & 4 ? step_[2] : 0);
      const uint32_t a = step_[normal == 0 ? 1 : 0], b = step_[normal == 2 ? 1 : 2];
      const uint32_t last = std::max({rank_[place], rank_[place + a], rank_[place + b], rank_[place + a + b]});
      if (last == rank_[voxel]) found.square[static_cast<size_t>(found.count++)] = place * 3 + normal;
    }
    return found;
  }

 private:
  static constexpr uint32_t kBorder = ~uint32_t{0};
  struct SquareAround {
    uint32_t back;  // axes along which its lowest voxel lies one step back, a bit each: z, y, x
    uint32_t normal;
  };
  static constexpr SquareAround kSquaresAround[12] = {{3, 2}, {5, 1}, {1, 1}, {1, 2}, {6, 0}, {2, 0},
                                                      {2, 2}, {4, 0}, {4, 1}, {0, 0}, {0, 1}, {0, 2}};
  const OrderedGrid& grid_;
  std::vector<uint32_t> rank_, order_;  // of a place; the place of a rank
  std::array<uint32_t, 3> step_;
};

// Edges that close a loop: the others join components (Kruskal), and are no rows of a reduction.
std::vector<uint8_t> loop_edges(const LowerStars& stars);
// Squares that begin a cavity, which are no columns.
std::vector<uint8_t> cavity_squares(const LowerStars& stars);

}  // namespace vox
