// Dimension 1 of kernels/persistence_matching.h. `either` is the union of both maps; borders come last.
#pragma once

#include "kernels/persistence_matching.h"
#include "kernels/persistence_parts.h"

namespace vox {

PersistenceMatching match_tunnels(const OrderedGrid& a, const OrderedGrid& b, const OrderedGrid& either);

}  // namespace vox
