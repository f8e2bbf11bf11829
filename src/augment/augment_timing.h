// How long the augmentation of one sample takes on one core, from a volume in memory: what `voxloom bench augment`
// says.
#pragma once

#include <cstdint>
#include <vector>

#include "augment/augment.h"

namespace vox {

struct AugmentTimingRequest {
  AugmentationOptions augmentation;
  Extent3 patch{128, 128, 128};  // anywhere inside the volume
  uint64_t seed = 0;
  int64_t first_sample = 0;
  int repeats = 15;
};
struct AugmentTiming {
  std::vector<double> wall_ms, cpu_ms;  // drawing, gathering image and label, intensity; on the calling thread alone
  std::vector<float> patch;             // of the last repeat
  std::vector<uint8_t> label;
};
AugmentTiming time_augmentation(const Volume& image, const Volume& label, const AugmentTimingRequest& request);

}  // namespace vox
