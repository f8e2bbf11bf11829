// Every voxel leads to the first of its neighbours, and so to the first voxel of a basin. Components can meet only at a
// voxel that touches two basins and whose earlier neighbours are not connected among themselves; those voxels alone are
// sorted, and join basins by union-find, as Kruskal's algorithm does.
#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "kernels/neighbourhood.h"
#include "kernels/persistence_parts.h"
#include "kernels/radix_sort.h"
#include "kernels/union_find.h"

namespace vox {
namespace {

class MergeTree {
 public:
  MergeTree(const OrderedGrid& grid, Connectivity connectivity, std::span<const OrderedGrid* const> other_orders)
      : grid_(grid), by_faces_(connectivity == Connectivity::kFaces), other_orders_(other_orders) {
    VOX_ASSERT(by_faces_ || connectivity == Connectivity::kCorners);
    VOX_CHECK(grid.places() < (int64_t{1} << 31), "persistence is found in volumes of fewer than 2^31 voxels, not ",
              grid.extent);
    for (int i = 0; i < 27; ++i)
      offsets_[i] = static_cast<int32_t>((i / 9 - 1) * grid.slice + (i / 3 % 3 - 1) * grid.row + i % 3 - 1);
  }

  std::vector<Merge> run() {
    number_basins();
    list_saddles();
    return join();
  }

 private:
  struct Saddle {
    uint32_t place;
    uint32_t basins;  // that it joins: from here on in touched_, up to those of the next saddle
  };

  template <class Visit>
  void for_each_row(Visit visit) const {
    for (int64_t z = 0; z < grid_.extent.z; ++z)
      for (int64_t y = 0; y < grid_.extent.y; ++y) visit(grid_.at(z, y, 0));
  }
  uint32_t neighbours() const { return by_faces_ ? neighbourhood::kFaces : neighbourhood::kCorners; }

  // For each place: the first of its neighbours and itself. Equal keys: the earlier place, which is seen first.
  std::vector<uint32_t> leads() const {
    std::vector<uint32_t> leads(static_cast<size_t>(grid_.places()));
    std::iota(leads.begin(), leads.end(), 0u);
    const int64_t count = grid_.extent.x;
    std::vector<int32_t> least(static_cast<size_t>(count)), offset(static_cast<size_t>(count));
    for_each_row([&](int64_t begin) {
      std::fill(least.begin(), least.end(), INT32_MAX);
      for (int i = 0; i < 27; ++i) {
        if (((neighbours() | neighbourhood::kMiddle) >> i & 1) == 0) continue;
        const int32_t *keys = grid_.keys.data() + begin + offsets_[i], step = offsets_[i];
        int32_t *lowest = least.data(), *where = offset.data();
        for (int64_t x = 0; x < count; ++x) {
          where[x] = keys[x] < lowest[x] ? step : where[x];
          lowest[x] = std::min(keys[x], lowest[x]);
        }
      }
      for (int64_t x = 0; x < count; ++x)
        leads[static_cast<size_t>(begin + x)] += static_cast<uint32_t>(offset[static_cast<size_t>(x)]);
    });
    return leads;
  }

  // In the order of their first voxels. Whatever leads to a border that comes first is basin 0.
  void number_basins() {
    UnionFind ways(leads());
    std::vector<uint64_t> first;
    const auto for_each_place = [&](auto visit) {
      for_each_row([&](int64_t begin) {
        for (int64_t x = 0; x < grid_.extent.x; ++x) visit(static_cast<uint32_t>(begin + x));
      });
    };
    for_each_place([&](uint32_t place) {
      if (ways.find(place) == place) first.push_back(grid_.sortable(place, place));
    });
    sort_by_upper_half(first);
    basins_.assign(static_cast<size_t>(grid_.places()), 0);
    if (grid_.keys.front() == static_cast<int32_t>(OrderedGrid::Border::kFirst)) first_.push_back(0);
    for (const uint64_t entry : first) {
      basins_[static_cast<uint32_t>(entry)] = static_cast<uint32_t>(first_.size());
      first_.push_back(static_cast<uint32_t>(entry));
    }
    for_each_place([&](uint32_t place) { basins_[place] = basins_[ways.find(place)]; });
  }

  void list_saddles() {
    std::vector<uint32_t> earlier(static_cast<size_t>(grid_.extent.x)), foreign(earlier.size());
    for_each_row([&](int64_t begin) {
      std::fill(earlier.begin(), earlier.end(), 0u);
      std::fill(foreign.begin(), foreign.end(), 0u);
      for (uint32_t i = 0; i < 27; ++i) {
        if (i < neighbourhood::kMiddleBit)  // of equal keys the earlier place comes first
          find_earlier(earlier.data(), foreign.data(), begin, i, std::less_equal<int32_t>());
        else if (i > neighbourhood::kMiddleBit)
          find_earlier(earlier.data(), foreign.data(), begin, i, std::less<int32_t>());
      }
      for (size_t x = 0; x < foreign.size(); ++x)
        if (foreign[x] != 0) add_saddle(static_cast<uint32_t>(begin) + static_cast<uint32_t>(x), earlier[x]);
    });
    saddles_.push_back({0, static_cast<uint32_t>(touched_.size())});
  }
  // Of a row: whether neighbour i comes earlier, and whether it then belongs to another basin.
  template <class Before>
  void find_earlier(uint32_t* earlier, uint32_t* foreign, int64_t begin, uint32_t i, Before before) const {
    const int32_t *keys = grid_.keys.data() + begin, step = offsets_[i];
    const uint32_t *basins = basins_.data() + begin, touches = neighbours() & 1u << i;
    for (int64_t x = 0; x < grid_.extent.x; ++x) {
      const uint32_t bit = before(keys[x + step], keys[x]) ? 1u << i : 0u;
      earlier[x] |= bit;
      foreign[x] |= basins[x + step] != basins[x] ? bit & touches : 0u;
    }
  }
  // Earlier neighbours that are connected were joined before: one of each component is enough.
  void add_saddle(uint32_t place, uint32_t earlier) {
    const size_t begin = touched_.size();
    for (uint32_t left = earlier & neighbours(); left != 0;) {
      const uint32_t seed = left & (0 - left);
      left &= ~(by_faces_ ? neighbourhood::connected_by_faces(seed, earlier)
                          : neighbourhood::connected_by_corners(seed, earlier));
      touched_.push_back(basins_[place + static_cast<uint32_t>(offsets_[std::countr_zero(seed)])]);
    }
    VOX_ASSERT(begin < 0xffffffe0);
    if (touched_.size() - begin > 1)
      saddles_.push_back({place, static_cast<uint32_t>(begin)});
    else
      touched_.resize(begin);
  }

  static bool comes_before(const OrderedGrid& order, uint32_t a, uint32_t b) {
    return order.keys[a] != order.keys[b] ? order.keys[a] < order.keys[b] : a < b;
  }
  // Of each basin: its first voxel by another order.
  std::vector<uint32_t> firsts_by(const OrderedGrid& order) const {
    std::vector<uint32_t> firsts = first_;
    for_each_row([&](int64_t begin) {
      for (uint32_t place = static_cast<uint32_t>(begin), end = place + static_cast<uint32_t>(grid_.extent.x);
           place < end; ++place) {
        uint32_t& first = firsts[basins_[place]];
        if (comes_before(order, place, first)) first = place;
      }
    });
    return firsts;
  }

  // Of two components the one with the smaller number is older, and a root has the smallest number of its set.
  std::vector<Merge> join() const {
    std::vector<uint64_t> order(saddles_.size() - 1);
    for (size_t i = 0; i < order.size(); ++i) order[i] = grid_.sortable(saddles_[i].place, static_cast<uint32_t>(i));
    sort_by_upper_half(order);
    UnionFind components(static_cast<int64_t>(first_.size()));
    std::vector<std::vector<uint32_t>> firsts;
    for (const OrderedGrid* other : other_orders_) firsts.push_back(firsts_by(*other));
    std::vector<Merge> merges;
    for (const uint64_t entry : order) {
      const Saddle *saddle = saddles_.data() + static_cast<uint32_t>(entry), *next = saddle + 1;
      uint32_t joined = components.find(touched_[saddle->basins]);
      for (uint32_t i = saddle->basins + 1; i < next->basins; ++i) {
        const uint32_t other = components.find(touched_[i]);
        if (other == joined) continue;
        merges.push_back({first_[std::max(joined, other)], saddle->place});
        for (size_t k = 0; k < firsts.size(); ++k)
          merges.back().begin_by[k] = merge_firsts(*other_orders_[k], firsts[k], joined, other);
        joined = components.unite(joined, other);
      }
    }
    return merges;
  }
  // Leaves the first of both with the root, and returns the other's.
  static uint32_t merge_firsts(const OrderedGrid& order, std::vector<uint32_t>& firsts, uint32_t a, uint32_t b) {
    uint32_t first = firsts[a], second = firsts[b];
    if (comes_before(order, second, first)) std::swap(first, second);
    firsts[std::min(a, b)] = first;
    return second;
  }

  const OrderedGrid& grid_;
  const bool by_faces_;
  const std::span<const OrderedGrid* const> other_orders_;
  int32_t offsets_[27];
  std::vector<uint32_t> basins_;  // of each place
  std::vector<uint32_t> first_;   // place, of each basin
  std::vector<Saddle> saddles_;
  std::vector<uint32_t> touched_;
};

}  // namespace

std::vector<Merge> merges_of(const OrderedGrid& grid, Connectivity connectivity,
                             std::span<const OrderedGrid* const> other_orders) {
  return MergeTree(grid, connectivity, other_orders).run();
}

}  // namespace vox
