// Turns about each of the axes by its own angle, in mm: a sphere stays a sphere where voxels are not cubes. (In voxels
// on request, as trainers do that know no spacing.)
#include <cmath>
#include <numbers>

#include "augment/spatial.h"
#include "base/error.h"

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

// Each multiple of `step` in the range with the same chance.
double draw_multiple(const std::vector<double>& range, double step, Random& random) {
  VOX_CHECK(range.size() == 2, "augmentation.rotate.degrees must be two numbers, low and high");
  const double first = std::ceil(range[0] / step), last = std::floor(range[1] / step);
  VOX_CHECK(first <= last, "augmentation.rotate.degrees holds no multiple of augmentation.rotate.step, ", step);
  return step * (first + static_cast<double>(random.below(static_cast<int64_t>(last - first) + 1)));
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  if (!random.chance(options.rotate.prob)) return;
  drawn.rotates = true;
  double degrees[3] = {0, 0, 0};
  const double step = options.rotate.step;
  const Spacing3 spacing = options.rotate.unit == "voxels" ? Spacing3{} : context.spacing;
  for (const int64_t listed : options.rotate.axes) {
    const int axis = checked_axis(listed, "rotate.axes");
    degrees[axis] = step > 0 ? draw_multiple(options.rotate.degrees, step, random)
                             : draw_between(options.rotate.degrees, "rotate.degrees", random);
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
