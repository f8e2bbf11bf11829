#include "patch/placement.h"

#include <algorithm>

namespace vox {

int64_t shuffled(int64_t index, int64_t count, const Random& random) {
  constexpr uint32_t kRounds = 48;
  const uint64_t n = static_cast<uint64_t>(count);
  uint64_t at = static_cast<uint64_t>(index);
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint64_t key = (static_cast<uint64_t>(random.bits_at(round)) * n) >> 32;
    const uint64_t partner = (key + n - at) % n;
    const uint64_t larger = std::max(at, partner);  // the same for both, so that they agree to swap or not
    const uint32_t coin = kRounds * static_cast<uint32_t>(1 + larger) + round;
    if (random.bits_at(coin) & 1) at = partner;
  }
  return static_cast<int64_t>(at);
}

int64_t visited_case(const SamplerSetup& setup, uint64_t seed, int64_t sample) {
  const int64_t count = static_cast<int64_t>(setup.cases.size());
  const int64_t visit = sample / setup.data.patches_per_case;
  const Random random(seed, static_cast<uint64_t>(visit / count), kCaseStream);
  return setup.cases[static_cast<size_t>(shuffled(visit % count, count, random))];
}

int64_t samples_per_visit_pass(const SamplerSetup& setup) {
  return static_cast<int64_t>(setup.cases.size()) * setup.data.patches_per_case;
}

namespace {

int64_t half_below_zero(int64_t excess) {  // floor(-excess / 2)
  return -((excess + 1) / 2);
}

}  // namespace

Extent3 place_about(const Extent3& centre, const Extent3& patch, const Extent3& volume) {
  Extent3 begin;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t room = volume[axis] - patch[axis];
    begin[axis] = room < 0 ? half_below_zero(-room) : std::clamp<int64_t>(centre[axis] - patch[axis] / 2, 0, room);
  }
  return begin;
}

Extent3 place_uniformly(const SamplerSetup& setup, int64_t case_index, Random& random) {
  const Extent3 &patch = setup.data.patch_size, volume = setup.source->extent(case_index);
  Extent3 begin;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t room = volume[axis] - patch[axis];
    begin[axis] = room < 0 ? half_below_zero(-room) : random.below(room + 1);
  }
  return begin;
}

std::optional<Extent3> place_on_label(const SamplerSetup& setup, int64_t case_index, const std::vector<int64_t>& labels,
                                      Random& random) {
  if (labels.empty()) return std::nullopt;
  const int64_t label = labels[static_cast<size_t>(random.below(static_cast<int64_t>(labels.size())))];
  const uint64_t high = random.bits(), low = random.bits();
  Extent3 voxel;
  if (!setup.source->foreground_voxel(case_index, label, (high << 32) | low, &voxel)) return std::nullopt;
  return place_about(voxel, setup.data.patch_size, setup.source->extent(case_index));
}

}  // namespace vox
