// model.output_scale: a network whose outputs are another's times a number. The weights are the other's own, so files
// of weights do not know of it. Output layers of our own networks are drawn smaller by as much (nets/layers.cpp), so
// that the first outputs are those without a scale and not as far off as it is large; a module from a file keeps its
// weights.
#pragma once

#include <memory>

#include "nets/network.h"

namespace vox {

// The network itself where the factor is 1.
std::unique_ptr<Network> scaled(std::unique_ptr<Network> network, double factor);

}  // namespace vox
