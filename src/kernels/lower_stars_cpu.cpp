// Edges that join components end those and are no rows; squares that separate cavities, found from the end as joining
// cubes, begin those and are no columns (clearing).
#include "kernels/lower_stars.h"

#include "kernels/union_find.h"

namespace vox {

std::vector<uint8_t> loop_edges(const LowerStars& stars) {
  std::vector<uint8_t> rows(stars.cells(), 0);
  UnionFind joined(stars.grid().places());
  for (const uint32_t voxel : stars.order()) {
    stars.for_each_edge(voxel, [&](uint32_t edge, uint32_t other) {
      const uint32_t a = joined.find(voxel), b = joined.find(other);
      if (a == b)
        rows[edge] = 1;
      else
        joined.unite(a, b);
    });
  }
  return rows;
}

// From the last square on, those that join cubes, or a cube and the outside.
std::vector<uint8_t> cavity_squares(const LowerStars& stars) {
  std::vector<uint8_t> found(stars.cells(), 0);
  const uint32_t outside = 0;  // a place on the border
  UnionFind joined(stars.grid().places());
  const auto cube = [&](uint32_t place) { return joined.find(stars.is_cube(place) ? place : outside); };
  for (size_t i = stars.order().size(); i-- > 0;) {
    const LowerStars::Squares squares = stars.squares_of(stars.order()[i]);
    for (int j = squares.count; j-- > 0;) {
      const uint32_t square = squares.square[static_cast<size_t>(j)];
      const uint32_t a = cube(square / 3), b = cube(square / 3 - stars.step(square % 3));
      if (a == b) continue;
      joined.unite(a, b);
      found[square] = 1;
    }
  }
  return found;
}

}  // namespace vox
