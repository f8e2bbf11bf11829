// The three dimensions of betti_matching.h, one file each.
#pragma once

#include "kernels/betti_matching.h"

namespace vox {

// `either` is the union of p and g; masks hold 0 and 1.
struct MaskPair {
  const uint8_t *p, *g, *either;
  Extent3 extent;
};

int64_t match_components(const MaskPair& masks);
int64_t match_tunnels(const MaskPair& masks);
int64_t match_cavities(const MaskPair& masks);

}  // namespace vox
