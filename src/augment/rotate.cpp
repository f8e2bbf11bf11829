// Turns about each of the axes by its own angle, in mm: a sphere stays a sphere where voxels are not cubes.
#include <cmath>
#include <numbers>

#include "augment/spatial.h"

namespace vox {
namespace {

SpatialMap turn_about(int axis, double degrees, const Spacing3& spacing) {
  const double radians = degrees * std::numbers::pi / 180;
  const int u = (axis + 1) % 3, v = (axis + 2) % 3;
  double turn[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  turn[u][u] = turn[v][v] = std::cos(radians);
  turn[u][v] = -std::sin(radians);
  turn[v][u] = std::sin(radians);
  return from_millimetres(turn, spacing);
}

void draw(const AugmentationOptions& options, const Extent3&, const Spacing3& spacing, Random random, Drawn& drawn) {
  if (!random.chance(options.rotate.prob)) return;
  double degrees[3] = {0, 0, 0};
  for (const int64_t listed : options.rotate.axes) {
    const int axis = checked_axis(listed, "rotate.axes");
    degrees[axis] = draw_between(options.rotate.degrees, "rotate.degrees", random);
    add_map(drawn, turn_about(axis, degrees[axis], spacing));
  }
  drawn.parameters.emplace_back("rotate", triple(degrees) + " degrees");
}

}  // namespace

TransformEntry rotate_transform() {
  return {"rotate", "turn by an angle about each axis", draw,
          [](const AugmentationOptions& o) { return o.rotate.enabled; }};
}

}  // namespace vox
