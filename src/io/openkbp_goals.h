// What each voxel of an OpenKBP patient is to get, or not to get, as openkbp_plan.h plans it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/openkbp_plan.h"

namespace vox {

// What a voxel's dose costs: (dose - gray)^2, weighed by the side on which it is.
struct OpenKbpGoal {
  float gray, below, above;
};

struct OpenKbpGoals {
  std::vector<int64_t> voxels;
  std::vector<OpenKbpGoal> goals;
};

// Of half of the voxels of structures, as on a chessboard, and an eighth of the others, which are many.
OpenKbpGoals openkbp_goals_of(const OpenKbpAnatomy& anatomy);

bool is_openkbp_target(uint16_t bits);
bool may_get_openkbp_dose(uint16_t bits);
std::array<int64_t, 3> openkbp_place_of(int64_t voxel);

}  // namespace vox
