// How the cells that come with a voxel cancel each other (Robins, Wood and Sheppard 2011, "Theory and algorithms for
// constructing discrete Morse complexes from grayscale digital images"), where voxels are vertices and every edge,
// square and cube comes with the last of its voxels (its star). Around the voxel its edges, squares and cubes are
// known by the neighbour at their far end: one of 6, 12 and 8, as bits of kernels/neighbourhood.h.
//
// One edge is paired with the voxel, others with a square that they share with an edge before them, squares with
// cubes. What is left is critical: an edge for each further component of the earlier neighbours, a square for each
// tunnel through them, a cube where they surround the voxel. Pairs change nothing that can be seen from outside.
#pragma once

#include <bit>

#include "kernels/neighbourhood.h"

namespace vox::star {

// Directions of edges, in the order of their bits: -z, -y, -x, x, y, z.
constexpr int kDirections = 6;
VOX_HOST_DEVICE constexpr int opposite(int direction) {
  return 5 - direction;
}
VOX_HOST_DEVICE constexpr int axis_of(int direction) {
  return direction < 3 ? direction : 5 - direction;
}
VOX_HOST_DEVICE constexpr int stride(int axis) {  // of bits
  return axis == 0 ? 9 : axis == 1 ? 3 : 1;
}
VOX_HOST_DEVICE constexpr uint32_t bit_of(int direction) {
  const int step = stride(axis_of(direction));
  return 1u << (direction < 3 ? 13 - step : 13 + step);
}

// Of the bits of directions, 3 bits for every second: their number.
constexpr uint64_t kDirectionAt =
    uint64_t{1} << 3 * 5 | uint64_t{2} << 3 * 6 | uint64_t{3} << 3 * 7 | uint64_t{4} << 3 * 8 | uint64_t{5} << 3 * 11;

constexpr uint32_t kBackX = 0111111111, kMidX = kBackX << 1, kBackY = 0007007007, kMidY = kBackY << 3;
constexpr uint32_t kBackZ = 0777, kMidZ = kBackZ << 9;
VOX_HOST_DEVICE constexpr uint32_t back(int axis) {
  return axis == 0 ? kBackZ : axis == 1 ? kBackY : kBackX;
}
VOX_HOST_DEVICE constexpr uint32_t middle(int axis) {
  return back(axis) << stride(axis);
}
VOX_HOST_DEVICE constexpr uint32_t front(int axis) {
  return back(axis) << 2 * stride(axis);
}
// From the middle of an axis to both sides, and back.
VOX_HOST_DEVICE constexpr uint32_t spread(uint32_t set, int axis) {
  return (set & middle(axis)) << stride(axis) | (set & middle(axis)) >> stride(axis);
}
VOX_HOST_DEVICE constexpr uint32_t gathered(uint32_t set, int axis) {
  return (set & back(axis)) << stride(axis) | (set & front(axis)) >> stride(axis);
}
VOX_HOST_DEVICE constexpr uint32_t flipped(uint32_t set, int axis) {
  return (set & back(axis)) << 2 * stride(axis) | (set & front(axis)) >> 2 * stride(axis);
}

struct Cells {
  uint32_t edges, squares, cubes;
};
constexpr uint32_t kEdgeVoxels = neighbourhood::kFaces;
constexpr uint32_t kCubeVoxels = (1u | 1u << 2 | 1u << 6 | 1u << 8) * (1u | 1u << 18);
constexpr uint32_t kSquareVoxels = neighbourhood::kCorners & ~kEdgeVoxels & ~kCubeVoxels;

// A cell comes with the voxel where all of its faces do.
VOX_HOST_DEVICE constexpr Cells cells_of(uint32_t earlier) {
  Cells cells{earlier & kEdgeVoxels, earlier & kSquareVoxels, earlier & kCubeVoxels};
  for (int axis = 0; axis < 3; ++axis) cells.squares &= spread(cells.edges, axis) | middle(axis);
  for (int axis = 0; axis < 3; ++axis) cells.cubes &= spread(cells.squares, axis);
  return cells;
}

// What an edge is paired with: the square that it shares with the edge of another direction, or one of these.
enum : uint32_t { kWithVoxel = 6, kCritical = 7, kAbsent = 8 };
constexpr int kPartnerBits = 4;
constexpr uint32_t kNoPartners = 0x888888;  // all are absent

struct Gradient {
  uint32_t partners = 0;     // kPartnerBits for each direction
  uint32_t through[3] = {};  // cubes that are paired with their square whose normal is that axis
  uint32_t squares = 0;      // critical
  uint32_t cube = 0;         // critical, or none
  VOX_HOST_DEVICE constexpr uint32_t partner(int direction) const {
    return partners >> kPartnerBits * direction & ((1u << kPartnerBits) - 1);
  }
};

VOX_HOST_DEVICE int first_direction(uint32_t set) {
#ifdef __CUDA_ARCH__
  const int bit = __ffs(static_cast<int>(set)) - 1;
#else
  const int bit = std::countr_zero(set);
#endif
  return static_cast<int>(kDirectionAt >> 3 * (bit / 2) & 7);
}

// A tree for each component of the edges, which touch in squares. Returns the squares that are in no tree.
VOX_HOST_DEVICE uint32_t pair_edges(Gradient& gradient, const Cells& cells) {
  uint32_t left = cells.edges, squares = cells.squares, partners = kNoPartners;
  uint32_t root_kind = kWithVoxel;
  while (left != 0) {
    const int root = first_direction(left);
    partners ^= (root_kind ^ kAbsent) << kPartnerBits * root;
    root_kind = kCritical;
    left &= ~bit_of(root);
    for (uint32_t reached = bit_of(root); reached != 0;) {
      const int d = first_direction(reached), axis = axis_of(d), step = stride(axis);
      reached &= ~bit_of(d);
      const uint32_t around = cells.squares & (d < 3 ? back(axis) : front(axis));
      const uint32_t found = (d < 3 ? around << step : around >> step) & left;
      left &= ~found;
      reached |= found;
      squares &= ~(d < 3 ? found >> step : found << step);
      for (uint32_t others = found; others != 0; others &= others - 1)
        partners ^= (static_cast<uint32_t>(d) ^ kAbsent) << kPartnerBits * first_direction(others);
    }
  }
  gradient.partners = partners;
  return squares;
}

// From what is outside of the cubes inwards: each goes with a square behind which none is left.
VOX_HOST_DEVICE void pair_cubes(Gradient& gradient, uint32_t squares, uint32_t cubes) {
  for (uint32_t before = 0; cubes != 0;) {
    if (before == cubes) {  // they are closed
      gradient.cube = cubes & (0 - cubes);
      cubes &= ~gradient.cube;
    }
    before = cubes;
    for (int normal = 0; normal < 3; ++normal) {
      const uint32_t open = cubes & spread(squares, normal) & ~flipped(cubes, normal);
      gradient.through[normal] |= open;
      cubes &= ~open;
      squares &= ~gathered(open, normal);
    }
  }
  gradient.squares = squares;
}

VOX_HOST_DEVICE Gradient gradient_of(uint32_t earlier) {
  const Cells cells = cells_of(earlier);
  Gradient gradient;
  pair_cubes(gradient, pair_edges(gradient, cells), cells.cubes);
  return gradient;
}

}  // namespace vox::star
