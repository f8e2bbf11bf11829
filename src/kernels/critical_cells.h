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

}  // namespace vox
