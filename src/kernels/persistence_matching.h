// Which features of two maps are the same (Stucki 2023, "Topologically faithful image segmentation via induced matching
// of persistence barcodes"): those that become one feature of the map that is inside wherever either is. Voxels are
// vertices. For a loss of a prediction and its label: matched features are drawn together, others to their diagonals.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/persistence.h"

namespace vox {

struct PersistenceMatching {
  std::vector<PersistencePair> a, b;            // as persistence_pairs_cpu finds them, in any order
  std::vector<std::array<int64_t, 2>> matches;  // places in a and in b; the two that never die are the same
};

PersistenceMatching match_persistence_cpu(const float* a, const float* b, const Extent3& extent, int dimension,
                                          Level level = Level::kRising);

}  // namespace vox
