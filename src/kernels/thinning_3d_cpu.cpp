// Six directions in turn, until none of them takes anything away. A direction first lists the voxels that are border
// on its side and may go by themselves: not the end of a line, and taking it away changes neither the Euler
// characteristic nor the number of components around it. Then, in order, those go that still keep their neighbours
// together. Which voxels may not go is remembered until one of their neighbours does, so each layer is looked at once.
#include <immintrin.h>

#include <array>
#include <vector>

#include "kernels/neighbourhood.h"
#include "kernels/padded_bits.h"
#include "kernels/pieces.h"
#include "kernels/thinning.h"

namespace vox {
namespace {

using neighbourhood::bit_at, neighbourhood::kMiddle;

// Voxels as closed cubes. What goes with the cube in the middle, seen from one of its corners: the corner if no other
// cube has it, edges (each seen from 2 corners), faces (from 4), the cube (from 8), as eighths of the Euler
// characteristic.
struct Octant {
  uint32_t voxels = 0;
  std::array<int8_t, 256> change{};  // by the octant's voxels in the order of their bits
};

int8_t change_in(const std::array<uint32_t, 3>& faces, const std::array<uint32_t, 3>& edges, uint32_t corner,
                 uint32_t neighbours) {
  const auto free = [&](uint32_t others) { return (neighbours & others) == 0 ? 1 : 0; };
  int change = 8 * free(faces[0] | faces[1] | faces[2] | edges[0] | edges[1] | edges[2] | corner) - 1;
  for (size_t i = 0; i < 3; ++i) {
    change += 2 * free(faces[i]);
    change -= 4 * free(faces[i] | faces[(i + 1) % 3] | edges[i]);
  }
  return static_cast<int8_t>(change);
}

Octant make_octant(int z, int y, int x) {  // the direction of the corner: -1 or 1 each
  const std::array<uint32_t, 3> faces{bit_at(z, 0, 0), bit_at(0, y, 0), bit_at(0, 0, x)};
  const std::array<uint32_t, 3> edges{bit_at(z, y, 0), bit_at(0, y, x), bit_at(z, 0, x)};
  Octant octant;
  octant.voxels = kMiddle | bit_at(z, y, x);
  for (size_t i = 0; i < 3; ++i) octant.voxels |= faces[i] | edges[i];
  for (uint32_t i = 0; i < 256; ++i)
    octant.change[i] = change_in(faces, edges, bit_at(z, y, x), _pdep_u32(i, octant.voxels));
  return octant;
}

bool keeps_euler(uint32_t around) {
  static const std::array<Octant, 8> octants = [] {
    std::array<Octant, 8> all;
    for (int i = 0; i < 8; ++i)
      all[static_cast<size_t>(i)] = make_octant(i & 4 ? 1 : -1, i & 2 ? 1 : -1, i & 1 ? 1 : -1);
    return all;
  }();
  int change = 0;
  for (const Octant& octant : octants) change += octant.change[_pext_u32(around, octant.voxels)];
  return change == 0;
}

// Whether the neighbours are one component (through corners) without the voxel in the middle, or none at all.
bool keeps_connections(uint32_t around) {
  const uint32_t neighbours = around & ~kMiddle;
  return neighbourhood::connected_by_corners(neighbours & (0 - neighbours), neighbours) == neighbours;
}

bool may_go(uint32_t around) {
  constexpr int kEndOfLine = 2;  // with the voxel itself
  return std::popcount(around) != kEndOfLine && keeps_euler(around) && keeps_connections(around);
}

struct Direction {
  int dz, dy, dx;
};
constexpr Direction kDirections[6] = {{0, -1, 0}, {0, 1, 0}, {0, 0, 1}, {0, 0, -1}, {1, 0, 0}, {-1, 0, 0}};

struct Place {
  int32_t y, x;
};

class VolumeThinning {
 public:
  VolumeThinning(const uint8_t* mask, const Extent3& extent, ThreadPool* pool)
      : bits_(mask, extent), settled_(extent), pool_(pool), candidates_(static_cast<size_t>(extent.z)) {}

  void run(uint8_t* out) {
    const int directions = bits_.extent().z == 1 ? 4 : 6;  // a single slice is thinned within itself
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = 0; i < directions; ++i) {
        for_each_piece(pool_, bits_.extent().z, [&](int64_t z) { list_candidates(z, kDirections[i]); });
        for (int64_t z = 0; z < bits_.extent().z; ++z) changed |= take_away(z);
      }
    }
    bits_.unpack(out);
  }

 private:
  uint32_t around(int64_t z, int64_t y, int64_t x) const {
    const uint64_t* row = bits_.row(z - 1, y - 1);
    const int64_t stride = bits_.stride(), slice = bits_.slice();
    const auto three = [&](const uint64_t* first) {
      return three_bits(first, x) | three_bits(first + stride, x) << 3 | three_bits(first + 2 * stride, x) << 6;
    };
    return three(row) | three(row + slice) << 9 | three(row + 2 * slice) << 18;
  }

  void list_candidates(int64_t z, const Direction& side) {
    std::vector<Place>& found = candidates_[static_cast<size_t>(z)];
    found.clear();
    for (int64_t y = 0; y < bits_.extent().y; ++y) {
      const uint64_t *here = bits_.row(z, y), *beside = bits_.row(z + side.dz, y + side.dy);
      uint64_t* settled = settled_.row(z, y);
      for (int64_t i = 0; i < bits_.words(); ++i) {
        if ((here[i] & ~settled[i]) == 0) continue;
        const uint64_t outside = ~(side.dx == 0  ? beside[i]
                                   : side.dx > 0 ? bits_after(beside + i)
                                                 : bits_before(beside + i));
        for (uint64_t border = here[i] & ~settled[i] & outside; border != 0; border &= border - 1) {
          const int bit = std::countr_zero(border);
          const int64_t x = i * 64 + bit;
          if (may_go(around(z, y, x)))
            found.push_back({static_cast<int32_t>(y), static_cast<int32_t>(x)});
          else
            settled[i] |= uint64_t{1} << bit;
        }
      }
    }
  }

  bool take_away(int64_t z) {
    bool changed = false;
    for (const auto& [y, x] : candidates_[static_cast<size_t>(z)]) {
      if (!keeps_connections(around(z, y, x))) continue;
      bits_.row(z, y)[x / 64] &= ~(uint64_t{1} << (x % 64));
      unsettle_around(z, y, x);
      changed = true;
    }
    return changed;
  }

  void unsettle_around(int64_t z, int64_t y, int64_t x) {
    for (int64_t near_z = z - 1; near_z <= z + 1; ++near_z) {
      for (int64_t near_y = y - 1; near_y <= y + 1; ++near_y) {
        uint64_t* row = settled_.row(near_z, near_y);
        for (int64_t bit = x + 63; bit <= x + 65; ++bit) row[bit / 64 - 1] &= ~(uint64_t{1} << (bit % 64));
      }
    }
  }

  PaddedBits bits_, settled_;  // settled: looked at, and not to go while its neighbours stay
  ThreadPool* pool_;
  std::vector<std::vector<Place>> candidates_;  // of each slice, in order
};

}  // namespace

void thin_3d_cpu(uint8_t* out, const uint8_t* mask, const Extent3& extent, ThreadPool* pool) {
  if (extent.voxels() > 0) VolumeThinning(mask, extent, pool).run(out);
}

}  // namespace vox
