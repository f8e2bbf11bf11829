// Betti numbers of a mask as a cubical complex whose vertices are its voxels (V-construction): foreground connects
// through faces (6), background through corners (26).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/shape.h"
#include "kernels/components.h"

namespace vox {

struct CellCounts {  // cells all of whose voxels are foreground
  int64_t vertices = 0, edges = 0, squares = 0, cubes = 0;
  int64_t euler() const { return vertices - edges + squares - cubes; }
};
CellCounts count_cells_cpu(const uint8_t* mask, const Extent3& extent);

// Components, tunnels, cavities. A cavity does not touch the edge of the volume.
std::array<int64_t, 3> betti_numbers_cpu(const uint8_t* mask, const Extent3& extent);

// Of the background's components: 1 where the component does not touch the edge of the volume.
std::vector<uint8_t> enclosed(const RunComponents& background, const Extent3& extent);

}  // namespace vox
