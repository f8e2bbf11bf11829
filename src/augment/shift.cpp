// Moves the patch over the volume, by fractions of a voxel too.
#include <algorithm>
#include <array>
#include <cmath>

#include "augment/spatial.h"

namespace vox {
namespace {

struct Range {
  double low, high;
};

// How far the patch may move along an axis so that the corners of the kept box, where the map so far shows them, do not
// leave it (or, where they are outside already, get no farther). The way back from the source needs the inverse.
std::array<Range, 3> room_around(const Box3& kept, const SpatialMap& map, const Extent3& patch) {
  const auto& m = map.linear;
  double inverse[3][3], determinant = 0;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      const int a = (column + 1) % 3, b = (column + 2) % 3, c = (row + 1) % 3, d = (row + 2) % 3;
      inverse[row][column] = m[a][c] * m[b][d] - m[a][d] * m[b][c];
    }
  }
  for (int k = 0; k < 3; ++k) determinant += m[0][k] * inverse[k][0];
  std::array<Range, 3> room;
  for (int axis = 0; axis < 3; ++axis) {
    const double last = static_cast<double>(patch[axis] - 1);
    double lowest = last, highest = 0;
    for (int corner = 0; corner < 8; ++corner) {
      double at = last / 2;
      for (int k = 0; k < 3; ++k) {
        const double voxel = static_cast<double>((corner >> k & 1) != 0 ? kept.end[k] - 1 : kept.begin[k]);
        at += inverse[axis][k] / determinant * (voxel - static_cast<double>(patch[k] - 1) / 2 - map.shift[k]);
      }
      lowest = std::min(lowest, at);
      highest = std::max(highest, at);
    }
    room[static_cast<size_t>(axis)] = {-std::max(0.0, last - highest), std::max(0.0, lowest)};
  }
  return room;
}

// Each whole number of the range with the same chance; towards none where it holds none.
double whole_within(const std::vector<double>& range, Random& random) {
  const double first = std::ceil(range[0]), last = std::floor(range[1]);
  if (first > last) return std::trunc(range[0]);
  return first + static_cast<double>(random.below(static_cast<int64_t>(last - first) + 1));
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  if (!random.chance(options.shift.prob)) return;
  SpatialMap map;
  const bool bounded = options.shift.keep == "mask" && context.kept.has_value();
  std::array<Range, 3> room{};
  if (bounded) room = room_around(*context.kept, drawn.map, context.patch);
  for (size_t axis = 0; axis < 3; ++axis) {
    std::vector<double> range = options.shift.voxels;
    if (bounded && range.size() == 2)
      range = {std::clamp(range[0], room[axis].low, room[axis].high),
               std::clamp(range[1], room[axis].low, room[axis].high)};
    const double voxels = draw_between(range, "shift.voxels", random);
    map.shift[axis] = !options.shift.whole ? voxels : bounded ? whole_within(range, random) : std::round(voxels);
  }
  drawn.parameters.emplace_back("shift", triple(map.shift) + " voxels");
  add_map(drawn, map);
}

}  // namespace

TransformEntry shift_transform() {
  return {"shift", "move by fractions of a voxel", draw, [](const AugmentationOptions& o) { return o.shift.enabled; }};
}

}  // namespace vox
