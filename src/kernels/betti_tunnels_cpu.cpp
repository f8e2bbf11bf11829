// Tunnels that two masks share, by reducing the boundary matrix of the union's squares over Z/2, once for each mask.
//
// Squares come in the order of the union: foreground first, then by place. A square ends a tunnel of mask B where its
// boundary depends on earlier ones in all rows but those of B's edges, yet not in all rows. The latter is known
// beforehand (clearing: squares that join cubes of the dual graph, taken in reverse, close a cavity and depend), so
// only rows outside B are reduced. Boundaries are cycles, and a cycle is known from its edges outside a spanning tree
// (of the grid with B's components contracted), so the rows of a tree go, too.
#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "kernels/betti.h"
#include "kernels/betti_matching_parts.h"
#include "kernels/reduction.h"
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

// Calls found(square) for each square that ends a tunnel of the mask, in order. A mask's cycles are as many as its
// edges beyond a forest; when all have ended, nothing is left to find.
template <class Found>
void for_each_end(const Complex& complex, Flag mask, int64_t cycles, Found found) {
  Reduction reduction(complex, complex.rows_outside(mask));
  for (const bool foreground : {true, false}) {
    for (uint32_t square = 0; square < complex.squares(); ++square) {
      if (!complex.has(kSquare, square) || complex.has(kForeground, square) != foreground) continue;
      if (complex.has(kDependent, square) || reduction.reduce(square) != reduction.kNothing) continue;
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
