// A voxel and its 26 neighbours as bits: bit (dz + 1) * 9 + (dy + 1) * 3 + dx + 1.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace vox::neighbourhood {

constexpr uint32_t kMiddleBit = 13, kMiddle = 1u << kMiddleBit;
constexpr uint32_t kCorners = ((1u << 27) - 1) & ~kMiddle;  // all that touch it
constexpr uint32_t kFaces = 1u << 4 | 1u << 10 | 1u << 12 | 1u << 14 | 1u << 16 | 1u << 22;

constexpr uint32_t bit_at(int dz, int dy, int dx) {
  return 1u << ((dz + 1) * 9 + (dy + 1) * 3 + dx + 1);
}

// One step along an axis, both ways, without leaving the 3x3x3 voxels.
VOX_HOST_DEVICE constexpr uint32_t grown_x(uint32_t set) {
  constexpr uint32_t kFirst = 0111111111, kLast = kFirst << 2;
  return set | (set & ~kLast) << 1 | (set & ~kFirst) >> 1;
}
VOX_HOST_DEVICE constexpr uint32_t grown_y(uint32_t set) {
  constexpr uint32_t kFirst = 0007007007, kLast = kFirst << 6;
  return set | (set & ~kLast) << 3 | (set & ~kFirst) >> 3;
}
VOX_HOST_DEVICE constexpr uint32_t grown_z(uint32_t set) {
  constexpr uint32_t kAll = (1u << 27) - 1;
  return set | (set << 9 & kAll) | set >> 9;
}

// What is connected to the seed within `set`, through corners or through faces.
VOX_HOST_DEVICE constexpr uint32_t connected_by_corners(uint32_t seed, uint32_t set) {
  for (uint32_t before = 0; seed != before;) {
    before = seed;
    seed = grown_z(grown_y(grown_x(seed))) & set;
  }
  return seed;
}
VOX_HOST_DEVICE constexpr uint32_t connected_by_faces(uint32_t seed, uint32_t set) {
  for (uint32_t before = 0; seed != before;) {
    before = seed;
    seed = (grown_x(seed) | grown_y(seed) | grown_z(seed)) & set;
  }
  return seed;
}

}  // namespace vox::neighbourhood
