// How many topological features two masks share (Stucki 2023, "Topologically faithful image segmentation via induced
// matching of persistence barcodes"), with the counts of the Betti-Matching-3D package, whose order of cells decides
// ties: by (z, y, x) of the lowest voxel, then by direction.
//
// p and g are the features of each mask: components but for one, tunnels, cavities. m are the pairs that are one
// feature of the union of the masks as well. Foreground connects through faces, background through corners.
#pragma once

#include <array>
#include <cstdint>

#include "base/shape.h"

namespace vox {

struct BettiMatches {
  std::array<int64_t, 3> p{}, g{}, m{};
  BettiMatches& operator+=(const BettiMatches& other);
  bool operator==(const BettiMatches&) const = default;
};

// Memory: about 30 bytes a voxel, and what the reduction of tunnels keeps.
BettiMatches match_betti_cpu(const uint8_t* p, const uint8_t* g, const Extent3& extent);

}  // namespace vox
