// What is left of a map's cells once those that come with the same voxel have cancelled, and tunnels from it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/persistence_parts.h"
#include "kernels/tunnel_cells.h"

namespace vox {

struct CriticalCells {
  std::vector<uint32_t> links;           // of each edge: kernels/tunnel_cells.h
  std::vector<uint32_t> down;            // of each place: a neighbour that comes before it, or itself
  std::vector<uint32_t> up;              // of each cube: one that comes after it, or itself, or 0 for what is outside
  std::vector<uint64_t> edges, squares;  // key of the voxel that they come with, and their number; in order
};

TunnelCells tunnel_cells_of(const OrderedGrid& grid);
CriticalCells critical_cells_of(const OrderedGrid& grid);
std::vector<PersistencePair> tunnel_pairs_of(const OrderedGrid& grid, CriticalCells critical);

// Parts of it. Taken out of the cells: the links, where edges that join components end those and stand for nothing.
std::vector<uint32_t> take_links_of_loops(const TunnelCells& cells, CriticalCells& critical);
// In order. The others, from the last on, join cubes or a cube and the outside: they begin a cavity.
std::vector<uint32_t> squares_that_end_tunnels(const OrderedGrid& grid, const TunnelCells& cells,
                                               CriticalCells& critical);
uint32_t last_voxel_of_square(const OrderedGrid& grid, const TunnelCells& cells, uint32_t square);
uint32_t cube_or_outside(const OrderedGrid& grid, uint32_t place);
CriticalCells no_cells(const OrderedGrid& grid);  // to begin with

// Of a row of voxels: which neighbours come before each, as bits of kernels/neighbourhood.h.
class EarlierNeighbours {
 public:
  explicit EarlierNeighbours(const OrderedGrid& grid) : grid_(grid), earlier_(static_cast<size_t>(grid.extent.x)) {}
  const std::vector<uint32_t>& of_row(int64_t begin);

 private:
  template <class Before>
  void add(int64_t begin, int64_t offset, uint32_t bit, Before before);

  const OrderedGrid& grid_;
  std::vector<uint32_t> earlier_;
};

}  // namespace vox
