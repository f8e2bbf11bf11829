// Which structures have goals, with the strip behind the cord, is as in the planner that Babier et al. published (2022,
// OpenKBP-Opt). All numbers were chosen on the doses of 20 training patients.
#include "io/openkbp_goals.h"

#include <algorithm>
#include <cmath>

#include "io/openkbp.h"
#include "io/openkbp_csv.h"

namespace vox {
namespace {

constexpr int kOrgans = 7;  // the structures before the targets
constexpr uint16_t kAnyStructure = (1 << (kOrgans + 3)) - 1;
constexpr std::array<float, 3> kWantedGy{56.5f, 66, 73};  // PTV56, PTV63, PTV70; 95 % of each is to get its name
constexpr float kOverdoseWeight = 0.4f;                   // against 1 of too little

// A goal for voxels that are no target: dose costs nothing up to `free_gy`.
struct Limit {
  float weight, free_gy;
};
constexpr std::array<Limit, kOrgans> kOrganLimits{
    {{0.08f, 9}, {0.2f, 20}, {0.1f, 0}, {0.1f, 0}, {0.06f, 0}, {0.025f, 0}, {0.025f, 0}}};
constexpr Limit kTissueLimit{0.011f, 24};

// Planners shield the neck behind the spinal cord, which no file outlines.
constexpr int kCord = 1, kBrainstem = 0;
constexpr Limit kBehindCordLimit{0.034f, 12.5f};
constexpr double kBesideCordMm = 12;

float wanted_gy(uint16_t bits) {
  for (int target = 2; target >= 0; --target)
    if (bits >> (kOrgans + target) & 1) return kWantedGy[static_cast<size_t>(target)];
  return 0;
}

// What is behind the spinal cord (where it has no contour, the brainstem), a little wider than it; slices beyond its
// ends are as the last.
class BehindCord {
 public:
  explicit BehindCord(const OpenKbpAnatomy& anatomy) : beside_(kBesideCordMm / anatomy.spacing[1]) {
    add_slices_of(anatomy.bits, kCord);
    if (last_ < first_) add_slices_of(anatomy.bits, kBrainstem);
  }

  bool holds(const std::array<int64_t, 3>& place) const {
    if (last_ < first_) return false;
    const Slice& slice = slices_[static_cast<size_t>(std::clamp(place[2], first_, last_))];
    const auto side = static_cast<double>(place[1]);
    return slice.voxels > 0 && place[0] * slice.voxels >= slice.depths &&
           side >= static_cast<double>(slice.right) - beside_ && side <= static_cast<double>(slice.left) + beside_;
  }

 private:
  struct Slice {
    int64_t voxels = 0, depths = 0, right = kOpenKbpSide, left = 0;
  };

  void add_slices_of(const uint16_t* bits, int structure) {
    for (int64_t voxel = 0; voxel < kOpenKbpVoxels; ++voxel) {
      if (!(bits[voxel] >> structure & 1)) continue;
      const auto [depth, side, along] = openkbp_place_of(voxel);
      Slice& slice = slices_[static_cast<size_t>(along)];
      ++slice.voxels;
      slice.depths += depth;
      slice.right = std::min(slice.right, side);
      slice.left = std::max(slice.left, side);
      first_ = std::min(first_, along);
      last_ = std::max(last_, along);
    }
  }

  double beside_;  // in voxels
  int64_t first_ = kOpenKbpSide, last_ = -1;
  std::array<Slice, kOpenKbpSide> slices_{};
};

OpenKbpGoal goal_of(uint16_t bits, bool behind_cord, float tissue_weight) {
  if (const float gray = wanted_gy(bits); gray > 0) return {gray, 1, kOverdoseWeight};
  OpenKbpGoal goal{kTissueLimit.free_gy, 0, tissue_weight};
  const auto add = [&](const Limit& limit) {
    goal.above += limit.weight;
    goal.gray = limit.free_gy;
  };
  if (behind_cord) add(kBehindCordLimit);
  for (int organ = kOrgans - 1; organ >= 0; --organ)  // where organs overlap, the first says what is free
    if (bits >> organ & 1) add(kOrganLimits[static_cast<size_t>(organ)]);
  return goal;
}

// A large body does not outweigh the targets by as much as it is larger.
float tissue_weight_of(const uint16_t* bits) {
  double targets = 0, others = 0;
  for (int64_t voxel = 0; voxel < kOpenKbpVoxels; ++voxel)
    if (may_get_openkbp_dose(bits[voxel])) ++(is_openkbp_target(bits[voxel]) ? targets : others);
  return static_cast<float>(kTissueLimit.weight * std::sqrt(std::max(targets, 1.0) / std::max(others, 1.0)));
}

}  // namespace

bool is_openkbp_target(uint16_t bits) {
  return wanted_gy(bits) > 0;
}

bool may_get_openkbp_dose(uint16_t bits) {
  return bits >> kOpenKbpDoseMaskBit & 1;
}

std::array<int64_t, 3> openkbp_place_of(int64_t voxel) {
  return {voxel / (kOpenKbpSide * kOpenKbpSide), voxel / kOpenKbpSide % kOpenKbpSide, voxel % kOpenKbpSide};
}

OpenKbpGoals openkbp_goals_of(const OpenKbpAnatomy& anatomy) {
  const BehindCord behind_cord(anatomy);
  const float tissue_weight = tissue_weight_of(anatomy.bits);
  OpenKbpGoals goals;
  for (int64_t voxel = 0; voxel < kOpenKbpVoxels; ++voxel) {
    const uint16_t bits = anatomy.bits[voxel];
    const std::array<int64_t, 3> place = openkbp_place_of(voxel);
    const bool structure = bits & kAnyStructure;
    const bool left_out = structure ? (place[0] + place[1] + place[2]) & 1 : (place[0] | place[1] | place[2]) & 1;
    if (!may_get_openkbp_dose(bits) || left_out) continue;
    OpenKbpGoal goal = goal_of(bits, behind_cord.holds(place), tissue_weight);
    if (!structure) goal.above *= 4;  // each stands for four times as many as one of a structure
    goals.voxels.push_back(voxel);
    goals.goals.push_back(goal);
  }
  return goals;
}

}  // namespace vox
