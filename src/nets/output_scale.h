// model.output_scale: a network whose outputs are another's times a number. The weights are the other's own, so files
// of weights do not know of it. Fresh output layers begin smaller by as much: outputs begin where they would without a
// scale, not as far from any target as it is large, from where the first hundred steps would only bring them back.
#pragma once

#include <memory>

#include "nets/network.h"

namespace vox {

// The network itself where the factor is 1.
std::unique_ptr<Network> scaled(std::unique_ptr<Network> network, double factor);

}  // namespace vox
