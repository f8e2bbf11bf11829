// A stop watch whose hand is the GPU's own clock. A lap is a kernel of one thread, so that it may be part of a captured
// graph; its sums are memory of the GPU, read like any other result, and nobody waits for an event.
#pragma once

#include "kernels/cuda.h"

namespace vox::cuda {

constexpr int kMaxLapShares = 16;
struct LapShares {
  int count = 0;  // 0: the time since the last lap belongs to nothing
  int slot[kMaxLapShares] = {};
};

// Adds equal shares of the nanoseconds since the last lap to the slots that are named, and begins the next lap.
void take_lap(int64_t* nanoseconds, int64_t* last, const LapShares& shares, Stream stream);

}  // namespace vox::cuda
