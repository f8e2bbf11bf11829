// model.output_scale and model.added_channel: a network whose outputs are (another's + a channel of the image) times a
// number. The weights are the other's own, so files of weights do not know of it. Output layers of our own networks are
// drawn smaller by the scale (nets/layers.cpp), so that the first outputs are those without it and not as far off as it
// is large; a module from a file keeps its weights.
#pragma once

#include <memory>

#include "nets/network.h"

namespace vox {

// The network itself where the options ask for neither.
std::unique_ptr<Network> with_outputs_as_asked(std::unique_ptr<Network> network, const ModelOptions& options);

}  // namespace vox
