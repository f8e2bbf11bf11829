#include "metrics/surface_dice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/edt.h"

namespace vox {
namespace {

// How many of the corners inside are neighbours along an edge, and the most that one of them has.
struct Adjacency {
  int edges = 0, most = 0;
};

Adjacency adjacency(uint8_t corners) {
  Adjacency found;
  for (int corner = 0; corner < 8; ++corner) {
    if ((corners >> corner & 1) == 0) continue;
    int neighbours = 0;
    for (const int axis : {1, 2, 4}) neighbours += corners >> (corner ^ axis) & 1;
    found.edges += neighbours;
    found.most = std::max(found.most, neighbours);
  }
  found.edges /= 2;
  return found;
}

struct Cells {
  Extent3 extent;
  std::vector<uint8_t> corners;
};

// Cell (z, y, x) has the voxels z-1 and z, y-1 and y, x-1 and x.
Cells cells_of(const uint8_t* mask, const Extent3& extent, ThreadPool& pool) {
  Cells cells{extent + Extent3{1, 1, 1}, {}};
  cells.corners.assign(static_cast<size_t>(cells.extent.voxels()), 0);
  pool.for_each(cells.extent.z, [&](int64_t z) {
    for (int64_t y = 0; y < cells.extent.y; ++y) {
      uint8_t* out = cells.corners.data() + (z * cells.extent.y + y) * cells.extent.x;
      for (int side = 0; side < 4; ++side) {
        const int64_t from_z = z - 1 + (side >> 1), from_y = y - 1 + (side & 1);
        if (from_z < 0 || from_y < 0 || from_z >= extent.z || from_y >= extent.y) continue;
        const uint8_t* row = mask + (from_z * extent.y + from_y) * extent.x;
        for (int64_t x = 0; x < extent.x; ++x) {
          const uint32_t bit = row[x] != 0 ? 1u << (2 * side) : 0;
          out[x] = static_cast<uint8_t>(out[x] | bit << 1);
          out[x + 1] = static_cast<uint8_t>(out[x + 1] | bit);
        }
      }
    }
  });
  return cells;
}

struct Area {
  double all = 0, near = 0;
};

Area area_of(const Cells& cells, const Cells& other, double tolerance, ThreadPool& pool) {
  std::array<double, 256> areas;
  for (size_t i = 0; i < areas.size(); ++i) areas[i] = cell_area(static_cast<uint8_t>(i));
  const size_t count = cells.corners.size();
  std::vector<uint8_t> elsewhere(count);
  for (size_t i = 0; i < count; ++i) elsewhere[i] = other.corners[i] == 0 || other.corners[i] == 255;
  std::vector<float> squared(count);
  edt_squared_cpu(squared.data(), elsewhere.data(), cells.extent, {.limit_mm = tolerance + 1}, &pool);
  const float near = static_cast<float>(tolerance * tolerance);
  Area area;
  for (size_t i = 0; i < count; ++i) {
    if (cells.corners[i] == 0 || cells.corners[i] == 255) continue;
    area.all += areas[cells.corners[i]];
    if (squared[i] <= near) area.near += areas[cells.corners[i]];
  }
  return area;
}

}  // namespace

// The area depends on the shape alone, not on where the shape lies: triangles that cut off a corner, strips along an
// edge, faces, and what joins them. A set and its complement have the same surface.
double cell_area(uint8_t corners) {
  const double corner = std::sqrt(3.0) / 8, edge = std::sqrt(2.0) / 2;
  if (std::popcount(corners) > 4) corners = static_cast<uint8_t>(~corners);
  const auto [edges, most] = adjacency(corners);
  switch (std::popcount(corners)) {
    case 0:
      return 0;
    case 1:
      return corner;
    case 2:
      return edges == 1 ? edge : 2 * corner;
    case 3:
      return edges == 2 ? 0.5 + 3 * corner : edges == 1 ? edge + corner : 3 * corner;
    default:
      if (edges == 4) return 1;                                           // a face
      if (edges == 3) return most == 3 ? 6 * corner : edge + 4 * corner;  // around a corner; along a path
      if (edges == 2) return most == 2 ? 0.5 + 4 * corner : 2 * edge;     // three and one; two opposite edges
      return 4 * corner;
  }
}

double surface_dice(const uint8_t* a, const uint8_t* b, const Extent3& extent, double tolerance, ThreadPool& pool) {
  const auto empty = [&](const uint8_t* mask) {
    return std::all_of(mask, mask + extent.voxels(), [](uint8_t voxel) { return voxel == 0; });
  };
  if (empty(a) || empty(b)) return empty(a) && empty(b) ? 1 : 0;
  const Cells of_a = cells_of(a, extent, pool), of_b = cells_of(b, extent, pool);
  const Area area_a = area_of(of_a, of_b, tolerance, pool), area_b = area_of(of_b, of_a, tolerance, pool);
  return (area_a.near + area_b.near) / (area_a.all + area_b.all);
}

}  // namespace vox
