// Parts of persistence.h: the order of voxels, and the two methods that find pairs.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/components.h"
#include "kernels/persistence.h"

namespace vox {

// Orders as the value does, rising or falling; 0 and -0 are equal.
inline int32_t order_key(float value, Level level) {
  const float sum = (level == Level::kRising ? value : -value) + 0.0f;
  int32_t bits;
  std::memcpy(&bits, &sum, sizeof bits);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

// A voxel comes before another where its key is smaller, or the same and its place earlier. A border of one voxel
// stands around the grid, before or after all others.
struct OrderedGrid {
  enum class Border : int32_t { kFirst = INT32_MIN, kLast = INT32_MAX };

  OrderedGrid(const Extent3& size, Border border)
      : extent(size),
        row(size.x + 2),
        slice((size.y + 2) * (size.x + 2)),
        keys(static_cast<size_t>((size.z + 2) * slice), static_cast<int32_t>(border)) {}

  int64_t at(int64_t z, int64_t y, int64_t x) const { return (z + 1) * slice + (y + 1) * row + x + 1; }
  int64_t places() const { return (extent.z + 2) * slice; }
  int64_t voxel(int64_t place) const {  // without the border
    return ((place / slice - 1) * extent.y + place % slice / row - 1) * extent.x + place % row - 1;
  }

  uint64_t sortable(int64_t place, uint32_t payload) const {  // for sort_by_upper_half
    return uint64_t{static_cast<uint32_t>(keys[static_cast<size_t>(place)]) ^ 0x80000000u} << 32 | payload;
  }

  Extent3 extent;
  int64_t row, slice;  // from place to place
  std::vector<int32_t> keys;
};

// In order, with a border that comes last; from the last voxel to the first, amid a space that comes before all of
// them.
OrderedGrid grid_of(const float* values, const Extent3& extent, Level level);
OrderedGrid reversed_grid_of(const float* values, const Extent3& extent, Level level);

// Components of a grid that grows voxel by voxel in its order: each but the first is merged into an older one.
struct Merge {
  int64_t begin, end;                 // places: first voxel of the younger component, voxel that joins both
  std::array<int64_t, 2> begin_by{};  // of the component that is younger by another order: its first voxel by that
};
std::vector<Merge> merges_of(const OrderedGrid& grid, Connectivity connectivity,
                             std::span<const OrderedGrid* const> other_orders = {});
std::vector<PersistencePair> component_pairs(const OrderedGrid& grid, Connectivity connectivity);

// Tunnels of voxels as vertices. The grid's border comes last, and is none of them.
std::vector<PersistencePair> tunnel_pairs(const OrderedGrid& grid);

}  // namespace vox
