// Where the beams of OpenKBP's plans can reach: each patient was planned with the same nine, 40 degrees apart about the
// body's axis, the first from the front.
#pragma once

#include <cstdint>

#include "base/volume.h"

namespace vox {

inline constexpr int kOpenKbpBeams = 9;
inline constexpr double kOpenKbpSourceMm = 1000;  // from a beam's source to the centre of the targets
inline constexpr int kOpenKbpBeamMargin = 2;      // voxels around a target that its field covers too

// For each voxel of 128^3 the number of beams whose ray from the source through it comes near a voxel with target != 0.
// Axes: front to back, left to right, along the body.
void count_openkbp_beams(const uint16_t* target, const Spacing3& spacing, uint8_t* count);

}  // namespace vox
