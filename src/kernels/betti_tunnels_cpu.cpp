// Tunnels that two masks share, by reducing the boundary matrix of the union's squares over Z/2, once for each mask.
//
// Squares come in the order of the union: foreground first, then by place. A square ends a tunnel of mask B where its
// boundary depends on earlier ones in all rows but those of B's edges, yet not in all rows. The latter is known
// beforehand (clearing: squares that join cubes of the dual graph, taken in reverse, close a cavity and depend), so
// only rows outside B are reduced. Boundaries are cycles, and a cycle is known from its edges outside a spanning tree
// (of the grid with B's components contracted), so the rows of a tree go, too. What is left of nearly every square is
// one edge, or two: an edge then stands for nothing, or for the other one, and such links are followed as in a
// union-find. Without them a loop would be pushed, square by square, to the edge of the volume.
#include <algorithm>
#include <array>
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

  // The four edges of a square.
  std::array<uint32_t, 4> edges_of(uint32_t square) const {
    const uint32_t voxel = square / 3, normal = square % 3;
    const uint32_t a = normal == 0 ? 1 : 0, b = normal == 2 ? 1 : 2;
    return {voxel * 3 + a, voxel * 3 + b, (voxel + static_cast<uint32_t>(step_[a])) * 3 + b,
            (voxel + static_cast<uint32_t>(step_[b])) * 3 + a};
  }
  // The order of rows: by the first square that has the edge, so that a new edge is a pivot.
  uint32_t key(uint32_t edge) const { return keys_[edge]; }

  // Edges outside the mask, but for a spanning tree of the grid with the mask's components contracted. Edges along z
  // are in the tree wherever they can be: squares between them then have two edges left, one above the other.
  std::vector<uint8_t> rows_outside(Flag mask) const {
    std::vector<uint8_t> rows(static_cast<size_t>(3 * voxels_), 0);
    UnionFind joined(voxels_);
    for (const bool inside : {true, false}) {
      for (uint32_t d = 0; d < 3; ++d) {
        for_each_voxel([&](uint32_t voxel, const Extent3& at) {
          const uint32_t edge = voxel * 3 + d;
          if (at[static_cast<int>(d)] + 1 == extent_[static_cast<int>(d)] || has(mask, edge) != inside) return;
          const uint32_t a = joined.find(voxel), b = joined.find(voxel + static_cast<uint32_t>(step_[d]));
          if (a != b)
            joined.unite(a, b);
          else
            rows[edge] = !inside;
        });
      }
    }
    return rows;
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
          if (has(kSquare, before)) first = std::min(first, rank(before) * 4 + (other < d ? 3 : 2));
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

class Reduction {
 public:
  Reduction(const Complex& complex, Flag mask)
      : complex_(complex), rows_(complex.rows_outside(mask)), link_(rows_.size()) {
    for (uint32_t edge = 0; edge < link_.size(); ++edge) link_[edge] = rows_[edge] ? edge : kNothing;
  }

  // Whether the square depends on those reduced before. To be asked in their order.
  bool depends(uint32_t square) {
    heap_.clear();
    for (const uint32_t edge : complex_.edges_of(square)) push(edge);
    for (;;) {
      const uint32_t pivot = pop_pivot();
      if (pivot == kNothing) return true;
      const auto column = link_[pivot] == kColumn ? columns_.find(pivot) : columns_.end();
      if (column == columns_.end()) {
        claim(pivot);
        return false;
      }
      for (size_t i = column->second; entries_[i] != kNothing; ++i) push(entries_[i]);
    }
  }

 private:
  static constexpr uint32_t kNothing = ~uint32_t{0}, kColumn = kNothing - 1;

  // What the edge stands for: nothing, an edge of its own, or one that a stored column replaces.
  uint32_t resolve(uint32_t edge) {
    uint32_t next = link_[edge];
    if (next >= kColumn || next == edge) return next == kNothing ? kNothing : edge;
    for (;;) {
      const uint32_t after = link_[next];
      if (after == kNothing) return link_[edge] = kNothing;
      if (after == kColumn || after == next) return next;
      link_[edge] = after;  // halves the path
      edge = next;
      next = after;
    }
  }

  void push(uint32_t edge) {
    const uint32_t row = resolve(edge);
    if (row == kNothing) return;
    heap_.push_back(uint64_t{complex_.key(row)} << 32 | row);
    std::push_heap(heap_.begin(), heap_.end());
  }
  uint64_t pop() {
    std::pop_heap(heap_.begin(), heap_.end());
    const uint64_t row = heap_.back();
    heap_.pop_back();
    return row;
  }
  // The last row that occurs an odd number of times, taken out; kNothing where there is none.
  uint32_t pop_pivot() {
    while (!heap_.empty()) {
      const uint64_t row = pop();
      if (heap_.empty() || heap_.front() != row) return static_cast<uint32_t>(row);
      pop();
    }
    return kNothing;
  }

  // From now on the pivot stands for the rest of the column.
  void claim(uint32_t pivot) {
    const uint32_t first = pop_pivot(), second = first == kNothing ? kNothing : pop_pivot();
    if (second == kNothing) {
      link_[pivot] = first;
      return;
    }
    link_[pivot] = kColumn;
    columns_.emplace(pivot, entries_.size());
    entries_.push_back(first);
    for (uint32_t row = second; row != kNothing; row = pop_pivot()) entries_.push_back(row);
    entries_.push_back(kNothing);
  }

  const Complex& complex_;
  const std::vector<uint8_t> rows_;
  std::vector<uint32_t> link_;
  std::vector<uint64_t> heap_;                    // key and edge, the last one first
  std::unordered_map<uint32_t, size_t> columns_;  // pivot -> where the rest of its column begins
  std::vector<uint32_t> entries_;                 // columns, each ended by kNothing
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
