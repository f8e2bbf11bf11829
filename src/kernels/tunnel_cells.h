// Cells of a grid of voxels as vertices, by number: an edge, a square and a cube have the place of their lowest voxel;
// an edge times 3 and its axis, a square times 3 and its normal.
#pragma once

#include "kernels/star_gradient.h"

namespace vox {

// What an edge stands for while columns are reduced, of each edge: an edge, itself where it is critical, or one of
// these.
namespace links {
constexpr uint32_t kNothing = ~uint32_t{0};
constexpr uint32_t kColumn = uint32_t{1} << 31;             // added to the place where the rest of a column begins
constexpr uint32_t kPivotColumn = uint32_t{3} << 30;        // the same, of a critical edge
constexpr uint32_t kPairs = 8, kPaired = kColumn - kPairs;  // added to its partner (kernels/star_gradient.h)

VOX_HOST_DEVICE constexpr bool is_paired(uint32_t link) {
  return link - kPaired < kPairs;
}
}  // namespace links

struct ThreeEdges {
  uint32_t edge[3];
};
struct FourEdges {
  uint32_t edge[4];
};
struct TwoCubes {
  uint32_t cube[2];
};

// Steps between places, with a border of one voxel around the grid.
struct TunnelCells {
  uint32_t slice, row;

  VOX_HOST_DEVICE constexpr uint32_t step(int axis) const { return axis == 0 ? slice : axis == 1 ? row : 1; }
  VOX_HOST_DEVICE constexpr uint32_t neighbour(uint32_t place, int direction) const {
    const uint32_t along = step(star::axis_of(direction));
    return direction < 3 ? place - along : place + along;
  }
  VOX_HOST_DEVICE constexpr uint32_t edge_at(uint32_t place, int direction) const {
    const uint32_t axis = static_cast<uint32_t>(star::axis_of(direction));
    return (direction < 3 ? place - step(static_cast<int>(axis)) : place) * 3 + axis;
  }
  // The lowest voxel of the cell between a voxel and the neighbour at its far end.
  VOX_HOST_DEVICE constexpr uint32_t lowest(uint32_t place, uint32_t neighbour_bit) const {
    for (int axis = 0; axis < 3; ++axis)
      if (neighbour_bit & star::back(axis)) place -= step(axis);
    return place;
  }
  VOX_HOST_DEVICE static constexpr int normal(uint32_t square_bit) {
    return square_bit & star::kMidZ ? 0 : square_bit & star::kMidY ? 1 : 2;
  }

  // The three other edges of the square that an edge is paired with, from the direction of one of them at both ends.
  VOX_HOST_DEVICE constexpr ThreeEdges others_of(uint32_t edge, uint32_t link) const {
    const int partner = static_cast<int>(link - links::kPaired);
    const uint32_t low = edge / 3, high = low + step(static_cast<int>(edge % 3));
    return {{edge_at(low, partner), edge_at(high, partner), neighbour(low, partner) * 3 + edge % 3}};
  }
  VOX_HOST_DEVICE constexpr FourEdges edges_of(uint32_t square) const {
    const uint32_t place = square / 3, normal = square % 3, a = normal == 0 ? 1 : 0, b = normal == 2 ? 1 : 2;
    return {{place * 3 + a, place * 3 + b, (place + step(static_cast<int>(a))) * 3 + b,
             (place + step(static_cast<int>(b))) * 3 + a}};
  }
  // On both sides of a square, where there are cubes.
  VOX_HOST_DEVICE constexpr TwoCubes cubes_beside(uint32_t square) const {
    return {{square / 3, square / 3 - step(static_cast<int>(square % 3))}};
  }
};

// Writes what the cells that come with a voxel are. `out` takes it, with cells numbered as above: link(edge, link),
// down(neighbour or the voxel itself: the way to the first voxel of its basin), critical_edge(edge,
// direction), critical_square(square, bit), up(cube, the cube or what is on the other side of its square: the way to
// the last cube).
template <class Out>
VOX_HOST_DEVICE void write_star(Out&& out, const TunnelCells& cells, uint32_t place, uint32_t earlier) {
  const star::Gradient gradient = star::gradient_of(earlier);
  if (gradient.partners == star::kNoPartners) out.down(place);
  for (int d = 0; d < star::kDirections; ++d) {
    const uint32_t partner = gradient.partner(d), edge = cells.edge_at(place, d);
    if (partner < star::kDirections) out.link(edge, links::kPaired + partner);
    if (partner == star::kWithVoxel) out.down(cells.neighbour(place, d));
    if (partner == star::kWithVoxel) out.link(edge, links::kNothing);
    if (partner == star::kCritical) out.critical_edge(edge, d);
  }
  for (int normal = 0; normal < 3; ++normal)
    for (uint32_t left = gradient.through[normal]; left != 0; left &= left - 1) {
      const uint32_t bit = left & (0 - left), cube = cells.lowest(place, bit), step = cells.step(normal);
      out.up(cube, bit & star::back(normal) ? cube + step : cube - step);
    }
  if (gradient.cube != 0) out.up(cells.lowest(place, gradient.cube), cells.lowest(place, gradient.cube));
  for (uint32_t left = gradient.squares; left != 0; left &= left - 1) {
    const uint32_t bit = left & (0 - left);
    out.critical_square(cells.lowest(place, bit) * 3 + static_cast<uint32_t>(cells.normal(bit)), bit);
  }
}

}  // namespace vox
