// A dose that OpenKBP's beams can give. Each patient was planned with the same nine, 40 degrees apart about the body's
// axis, the first from the front; how strong they are at each place was optimised, which this repeats in small: no
// scatter, and weights that are the same for all patients. It knows CT and contours alone. After one curve for all
// patients it is on average 2.9 Gy off the doses of the 20 training patients its numbers were chosen on, 3.2 Gy off
// those of 20 others.
#pragma once

#include <cstdint>

#include "base/volume.h"

namespace vox {

struct OpenKbpAnatomy {
  const int16_t* ct;     // 128^3; front to back, right to left, along the body
  const uint16_t* bits;  // as in OpenKbpPatient
  Spacing3 spacing;
};

// Gy for each voxel of 128^3; 0 outside of the possible-dose mask, and everywhere where there is no target.
void plan_openkbp_dose(const OpenKbpAnatomy& anatomy, float* dose);

}  // namespace vox
