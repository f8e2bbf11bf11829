// Tunnels that two masks share, by reducing the boundary matrix of the union's squares over Z/2, once for each mask.
//
// Squares come in the order of the union: foreground first, then by place. A square ends a tunnel of mask B where its
// boundary depends on earlier ones in all rows but those of B's edges, yet not in all rows. The latter is known
// beforehand (clearing: squares that join cubes of the dual graph, taken in reverse, close a cavity and depend), so
// only the rows outside B are reduced. Their order is free. Here it is the order of the first square that has the edge,
// so that nearly every square brings the edge that is its pivot and needs no work and no memory; the rest are short.
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "kernels/betti.h"
#include "kernels/betti_matching_parts.h"
#include "kernels/union_find.h"

namespace vox {
namespace {

// Bits of a voxel, three of a kind: direction of the edges, normal of the squares that begin at it.
enum Flag : int { kEdgeOfP = 0, kEdgeOfG = 3, kSquare = 6, kForeground = 9, kDependent = 12 };

class Complex {
 public:
  explicit Complex(const MaskPair& masks) : extent_(masks.extent), voxels_(masks.extent.voxels()) {
    VOX_CHECK(voxels_ < (int64_t{1} << 27), "topology is matched in volumes of at most 2^27 voxels, not ", extent_);
    step_[0] = extent_.y * extent_.x;
    step_[1] = extent_.x;
    step_[2] = 1;
    set_flags(masks);
    clear_dependent();
    set_keys();
  }

  uint32_t squares() const { return static_cast<uint32_t>(3 * voxels_); }
  bool has(Flag flag, uint32_t cell) const { return (flags_[cell / 3] >> (flag + cell % 3) & 1) != 0; }
  uint32_t rank(uint32_t square) const { return has(kForeground, square) ? square : square + squares(); }
  uint32_t square_of(uint32_t rank) const { return rank < squares() ? rank : rank - squares(); }

  // Keys of the edges of a square that are not in the mask; returns how many.
  int outer_keys(uint32_t square, Flag mask, uint32_t* out) const {
    const uint32_t voxel = square / 3, normal = square % 3;
    const uint32_t a = normal == 0 ? 1 : 0, b = normal == 2 ? 1 : 2;
    const uint32_t edges[4] = {voxel * 3 + a, voxel * 3 + b, (voxel + static_cast<uint32_t>(step_[a])) * 3 + b,
                               (voxel + static_cast<uint32_t>(step_[b])) * 3 + a};
    int count = 0;
    for (const uint32_t edge : edges)
      if (!has(mask, edge)) out[count++] = keys_[edge];
    return count;
  }

 private:
  template <class Visit>
  void for_each_voxel(Visit visit) const {
    uint32_t voxel = 0;
    for (int64_t z = 0; z < extent_.z; ++z)
      for (int64_t y = 0; y < extent_.y; ++y)
        for (int64_t x = 0; x < extent_.x; ++x, ++voxel) visit(voxel, Extent3{z, y, x});
  }

  void set_flags(const MaskPair& masks) {
    flags_.assign(static_cast<size_t>(voxels_), 0);
    for_each_voxel([&](uint32_t voxel, const Extent3& at) {
      const bool more[3] = {at.z + 1 < extent_.z, at.y + 1 < extent_.y, at.x + 1 < extent_.x};
      uint32_t bits = 0;
      for (int d = 0; d < 3; ++d) {
        const int a = d == 0 ? 1 : 0, b = d == 2 ? 1 : 2;
        const int64_t next = voxel + step_[d];
        if (more[d] && masks.p[voxel] && masks.p[next]) bits |= 1u << (kEdgeOfP + d);
        if (more[d] && masks.g[voxel] && masks.g[next]) bits |= 1u << (kEdgeOfG + d);
        if (!more[a] || !more[b]) continue;
        bits |= 1u << (kSquare + d);
        const uint8_t* u = masks.either + voxel;
        if (u[0] && u[step_[a]] && u[step_[b]] && u[step_[a] + step_[b]]) bits |= 1u << (kForeground + d);
      }
      flags_[voxel] = static_cast<uint16_t>(bits);
    });
  }

  // Cubes are numbered by their lowest voxels; whatever is none is the outside.
  void clear_dependent() {
    std::vector<uint32_t> cube(static_cast<size_t>(voxels_), static_cast<uint32_t>(voxels_));
    for_each_voxel([&](uint32_t voxel, const Extent3&) {
      if ((flags_[voxel] >> kSquare & 7) == 7) cube[voxel] = voxel;
    });
    UnionFind joined(voxels_ + 1);
    for (const bool foreground : {false, true}) {
      for (uint32_t square = squares(); square-- > 0;) {
        if (!has(kSquare, square) || has(kForeground, square) != foreground) continue;
        const uint32_t voxel = square / 3;
        const int64_t before = static_cast<int64_t>(voxel) - step_[square % 3];
        const uint32_t a = joined.find(cube[voxel]);
        const uint32_t b = joined.find(before < 0 ? static_cast<uint32_t>(voxels_) : cube[static_cast<size_t>(before)]);
        if (a == b) continue;
        joined.unite(a, b);
        flags_[voxel] = static_cast<uint16_t>(flags_[voxel] | 1u << (kDependent + square % 3));
      }
    }
  }

  // The key of an edge: rank of the first square that has it, and which of its four edges it is.
  void set_keys() {
    keys_.assign(static_cast<size_t>(3 * voxels_), 0);
    for_each_voxel([&](uint32_t voxel, const Extent3& at) {
      for (int d = 0; d < 3; ++d) {
        uint32_t first = ~uint32_t{0};
        for (int other = 0; other < 3; ++other) {
          if (other == d) continue;
          const uint32_t normal = static_cast<uint32_t>(3 - d - other);
          const uint32_t here = voxel * 3 + normal;
          if (has(kSquare, here)) first = std::min(first, rank(here) * 4 + (d < other ? 0 : 1));
          if (at[other] == 0) continue;
          const uint32_t before = (voxel - static_cast<uint32_t>(step_[other])) * 3 + normal;
          if (has(kSquare, before)) first = std::min(first, rank(before) * 4 + (other < d ? 2 : 3));
        }
        keys_[voxel * 3 + static_cast<uint32_t>(d)] = first;
      }
    });
  }

  Extent3 extent_;
  int64_t voxels_;
  int64_t step_[3] = {};
  std::vector<uint16_t> flags_;
  std::vector<uint32_t> keys_;
};

// The matrix without the rows of one mask's edges. Columns that bring their own pivot are not stored.
class Reduction {
 public:
  Reduction(const Complex& complex, Flag mask) : complex_(complex), mask_(mask) {}

  // Whether the square depends on those reduced before. To be asked in their order.
  bool depends(uint32_t square) {
    uint32_t keys[4];
    const int count = complex_.outer_keys(square, mask_, keys);
    if (count == 0) return true;
    const uint32_t pivot = *std::max_element(keys, keys + count);
    if (pivot >> 2 == complex_.rank(square)) return false;
    heap_.assign(keys, keys + count);
    std::make_heap(heap_.begin(), heap_.end());
    return reduce();
  }

 private:
  bool reduce() {
    for (;;) {
      const uint32_t pivot = pop_pivot();
      if (pivot == kNone) return true;
      if (add_bringer(pivot)) continue;
      const auto stored = stored_.find(pivot);
      if (stored == stored_.end()) {
        store(pivot);
        return false;
      }
      for (size_t i = stored->second; entries_[i] != kNone; ++i) push(entries_[i]);
    }
  }

  // The square that brought the edge, where this edge is its pivot: its other edges take the place of the pivot.
  bool add_bringer(uint32_t pivot) {
    uint32_t keys[4];
    const int count = complex_.outer_keys(complex_.square_of(pivot >> 2), mask_, keys);
    if (*std::max_element(keys, keys + count) != pivot) return false;
    for (int i = 0; i < count; ++i)
      if (keys[i] != pivot) push(keys[i]);
    return true;
  }

  void push(uint32_t key) {
    heap_.push_back(key);
    std::push_heap(heap_.begin(), heap_.end());
  }
  uint32_t pop() {
    std::pop_heap(heap_.begin(), heap_.end());
    const uint32_t key = heap_.back();
    heap_.pop_back();
    return key;
  }
  // The largest key that occurs an odd number of times, taken out; kNone where there is none.
  uint32_t pop_pivot() {
    while (!heap_.empty()) {
      const uint32_t key = pop();
      if (heap_.empty() || heap_.front() != key) return key;
      pop();
    }
    return kNone;
  }
  void store(uint32_t pivot) {
    stored_.emplace(pivot, entries_.size());
    for (uint32_t key = pop_pivot(); key != kNone; key = pop_pivot()) entries_.push_back(key);
    entries_.push_back(kNone);
  }

  static constexpr uint32_t kNone = ~uint32_t{0};
  const Complex& complex_;
  const Flag mask_;
  std::vector<uint32_t> heap_;
  std::unordered_map<uint32_t, size_t> stored_;  // pivot -> where the column's other keys begin
  std::vector<uint32_t> entries_;                // columns, each ended by kNone
};

// Calls found(square) for each square that ends a tunnel of the mask, in order. A mask's cycles are as many as its
// edges beyond a forest; when all have ended, nothing is left to find.
template <class Found>
void for_each_end(const Complex& complex, Flag mask, int64_t cycles, Found found) {
  Reduction reduction(complex, mask);
  for (const bool foreground : {true, false}) {
    for (uint32_t square = 0; square < complex.squares(); ++square) {
      if (!complex.has(kSquare, square) || complex.has(kForeground, square) != foreground) continue;
      if (complex.has(kDependent, square) || !reduction.depends(square)) continue;
      if (!foreground) found(square);
      if (--cycles == 0) return;
    }
  }
}

int64_t cycles_of(const uint8_t* mask, const Extent3& extent) {
  const CellCounts cells = count_cells_cpu(mask, extent);
  return cells.edges - cells.vertices + run_components(mask, extent, Connectivity::kFaces).count;
}

}  // namespace

int64_t match_tunnels(const MaskPair& masks) {
  const Complex complex(masks);
  std::vector<uint32_t> ends_of_p;
  for_each_end(complex, kEdgeOfP, cycles_of(masks.p, masks.extent),
               [&](uint32_t square) { ends_of_p.push_back(square); });
  int64_t matches = 0;
  if (ends_of_p.empty()) return 0;
  for_each_end(complex, kEdgeOfG, cycles_of(masks.g, masks.extent),
               [&](uint32_t square) { matches += std::binary_search(ends_of_p.begin(), ends_of_p.end(), square); });
  return matches;
}

}  // namespace vox
