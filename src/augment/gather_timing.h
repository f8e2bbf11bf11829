// How long the gather takes when a patch is rotated and scaled afresh every time: what `voxloom bench gather` measures.
#pragma once

#include <cstdint>
#include <vector>

#include "augment/augment.h"

namespace vox {

struct GatherTimingRequest {
  Extent3 patch{128, 128, 128};  // about the centre of the volume
  uint64_t seed = 0;
  int repeats = 15;
};
struct GatherTiming {
  std::vector<double> wall_ms, cpu_ms;  // drawing and gathering, on the calling thread alone
  GatherMap map;                        // of the last repeat
  std::vector<float> patch;             // of the last repeat
};
GatherTiming time_gather(const Volume& volume, const GatherTimingRequest& request);

}  // namespace vox
