// Normal noise that depends on the voxel's number alone: the same on any thread, in any order, on the CPU and the GPU.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace vox {

// data[i] = fma(sigma, normal of draw first + i of `random`, data[i]). Draws are numbered up to 2^32.
void add_noise_cpu(float* data, int64_t count, float sigma, const Random& random, int64_t first);

}  // namespace vox
