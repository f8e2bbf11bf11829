// Intensity transforms on the GPU, as the CPU's: see intensity_passes.h for how steps become passes.
#pragma once

#include "kernels/cuda.h"
#include "kernels/intensity_passes.h"

namespace vox::cuda {

// What the passes read in tables must be on the device by then.
void run_passes(const std::vector<Pass>& passes, Stream stream);

}  // namespace vox::cuda
