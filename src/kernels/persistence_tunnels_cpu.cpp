// Tunnels from what does not cancel within the star of a voxel. Of these critical cells, edges that join components
// end those and are no rows; squares that separate cavities, found from the end as joining cubes, begin those and are
// no columns (clearing). The other squares end a tunnel each, and are reduced.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "kernels/critical_cells.h"
#include "kernels/radix_sort.h"
#include "kernels/tunnel_reduction.h"
#include "kernels/union_find.h"

namespace vox {
namespace {

bool is_inside(const OrderedGrid& grid, uint32_t place) {
  return grid.keys[place] != static_cast<int32_t>(OrderedGrid::Border::kLast);
}
struct StarWriter {
  const OrderedGrid& grid;
  CriticalCells& found;
  uint32_t place;

  void link(uint32_t edge, uint32_t link) { found.links[edge] = link; }
  void down(uint32_t neighbour) { found.down[place] = neighbour; }
  void up(uint32_t cube, uint32_t next) { found.up[cube] = cube_or_outside(grid, next); }
  void critical_edge(uint32_t edge, int) {
    found.links[edge] = edge;
    found.edges.push_back(grid.sortable(place, edge));
  }
  void critical_square(uint32_t square, uint32_t) { found.squares.push_back(grid.sortable(place, square)); }
};

}  // namespace

uint32_t cube_or_outside(const OrderedGrid& grid, uint32_t place) {
  return is_inside(grid, place) && is_inside(grid, place + static_cast<uint32_t>(grid.slice + grid.row + 1)) ? place
                                                                                                             : 0;
}

CriticalCells no_cells(const OrderedGrid& grid) {
  const size_t places = static_cast<size_t>(grid.places());
  return {.links = std::vector<uint32_t>(3 * places, links::kNothing),
          .down = std::vector<uint32_t>(places),
          .up = std::vector<uint32_t>(places),
          .edges = {},
          .squares = {}};
}

template <class Before>
void EarlierNeighbours::add(int64_t begin, int64_t offset, uint32_t bit, Before before) {
  const int32_t *keys = grid_.keys.data() + begin, *there = keys + offset;
  for (size_t x = 0; x < earlier_.size(); ++x) earlier_[x] |= before(there[x], keys[x]) ? bit : 0u;
}

const std::vector<uint32_t>& EarlierNeighbours::of_row(int64_t begin) {
  std::fill(earlier_.begin(), earlier_.end(), 0u);
  for (int i = 0; i < 27; ++i) {
    const int64_t offset = (i / 9 - 1) * grid_.slice + (i / 3 % 3 - 1) * grid_.row + i % 3 - 1;
    if (offset < 0)  // of equal keys the earlier place comes first
      add(begin, offset, 1u << i, std::less_equal<int32_t>());
    else if (offset > 0)
      add(begin, offset, 1u << i, std::less<int32_t>());
  }
  return earlier_;
}

std::vector<uint32_t> take_links_of_loops(const TunnelCells& cells, CriticalCells& critical) {
  UnionFind joined(std::move(critical.down));
  for (const uint64_t entry : critical.edges) {
    const uint32_t edge = static_cast<uint32_t>(entry), low = edge / 3;
    const uint32_t a = joined.find(low), b = joined.find(low + cells.step(static_cast<int>(edge % 3)));
    if (a == b) continue;
    joined.unite(a, b);
    critical.links[edge] = links::kNothing;
  }
  return std::move(critical.links);
}

std::vector<uint32_t> squares_that_end_tunnels(const OrderedGrid& grid, const TunnelCells& cells,
                                               CriticalCells& critical) {
  UnionFind joined(std::move(critical.up));
  std::vector<uint32_t> found;
  for (size_t i = critical.squares.size(); i-- > 0;) {
    const uint32_t square = static_cast<uint32_t>(critical.squares[i]);
    const TwoCubes beside = cells.cubes_beside(square);
    const uint32_t a = joined.find(cube_or_outside(grid, beside.cube[0]));
    const uint32_t b = joined.find(cube_or_outside(grid, beside.cube[1]));
    if (a == b)
      found.push_back(square);
    else
      joined.unite(a, b);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

uint32_t last_voxel_of_square(const OrderedGrid& grid, const TunnelCells& cells, uint32_t square) {
  uint32_t last = square / 3;
  for (const uint32_t edge : cells.edges_of(square).edge)
    for (const uint32_t place : {edge / 3, edge / 3 + cells.step(static_cast<int>(edge % 3))})
      if (grid.keys[place] > grid.keys[last] || (grid.keys[place] == grid.keys[last] && place > last)) last = place;
  return last;
}

TunnelCells tunnel_cells_of(const OrderedGrid& grid) {
  VOX_CHECK(3 * grid.places() < int64_t{links::kPaired}, "tunnels are found in volumes of at most 7*10^8 voxels, not ",
            grid.extent);
  return {static_cast<uint32_t>(grid.slice), static_cast<uint32_t>(grid.row)};
}

CriticalCells critical_cells_of(const OrderedGrid& grid) {
  const TunnelCells cells = tunnel_cells_of(grid);
  CriticalCells found = no_cells(grid);
  EarlierNeighbours earlier(grid);
  for (int64_t z = 0; z < grid.extent.z; ++z)
    for (int64_t y = 0; y < grid.extent.y; ++y) {
      uint32_t place = static_cast<uint32_t>(grid.at(z, y, 0));
      for (const uint32_t neighbours : earlier.of_row(place)) {
        write_star(StarWriter{grid, found, place}, cells, place, neighbours);
        ++place;
      }
    }
  sort_by_upper_half(found.edges);
  sort_by_upper_half(found.squares);
  return found;
}

std::vector<PersistencePair> tunnel_pairs_of(const OrderedGrid& grid, CriticalCells critical) {
  const TunnelCells cells = tunnel_cells_of(grid);
  const std::vector<uint32_t> squares = squares_that_end_tunnels(grid, cells, critical);
  TunnelReduction reduction(cells, grid.keys, take_links_of_loops(cells, critical));
  std::vector<PersistencePair> pairs;
  size_t same_death = 0;  // where those of the last voxel begin; they are in the order of their births
  for (const uint32_t square : squares) {
    const uint32_t edge = reduction.reduce(square);
    VOX_ASSERT(edge != links::kNothing);
    const uint32_t birth = reduction.last_voxel(edge), death = last_voxel_of_square(grid, cells, square);
    if (grid.keys[birth] == grid.keys[death]) continue;
    const PersistencePair pair{grid.voxel(birth), grid.voxel(death)};
    if (pairs.empty() || pairs.back().death != pair.death) same_death = pairs.size();
    pairs.push_back(pair);
    for (size_t at = pairs.size() - 1; at > same_death && pairs[at].birth < pairs[at - 1].birth; --at)
      std::swap(pairs[at], pairs[at - 1]);
  }
  return pairs;
}

std::vector<PersistencePair> tunnel_pairs(const OrderedGrid& grid) {
  return tunnel_pairs_of(grid, critical_cells_of(grid));
}

}  // namespace vox
