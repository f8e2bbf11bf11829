// Bends the patch: random shifts of a coarse grid of control points, joined by a cubic B-spline, are added to the
// positions that all other transforms together give. Nothing is resampled a second time.
#include <algorithm>

#include "augment/spatial.h"
#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

// Output voxels between control points along an axis.
float spacing_along(const ElasticOptions& options, const DrawContext& context, int axis) {
  const int64_t size = context.patch[axis];
  if (options.control_points > 0) {  // the outermost cell ends at the last voxel; float rounding must not open another
    const float cells = static_cast<float>(options.control_points - 3);
    return std::max(1.0f, static_cast<float>(size - 1) / cells * (1 + 1e-6f));
  }
  const double voxel = options.unit == "mm" ? context.spacing[axis] : 1;
  return static_cast<float>(options.grid / voxel);
}

ControlGrid empty_grid(const ElasticOptions& options, const DrawContext& context) {
  ControlGrid grid;
  for (int axis = 0; axis < 3; ++axis) {
    grid.spacing[axis] = spacing_along(options, context, axis);
    grid.points[axis] = covering_points(context.patch[axis], grid.spacing[axis]);
  }
  VOX_CHECK(grid.points.voxels() <= (int64_t{1} << 22), "augmentation.elastic.grid of ", options.grid, " asks for ",
            grid.points, " control points in a patch of ", context.patch, "; choose a coarser one");
  return grid;
}

void draw(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn) {
  const ElasticOptions& elastic = options.elastic;
  VOX_CHECK(elastic.control_points == 0 || elastic.control_points >= 4,
            "augmentation.elastic.control_points must be 0 or at least 4 (three of them lie beyond the patch), not ",
            elastic.control_points);
  if (!random.chance(elastic.prob)) return;
  const double magnitude = draw_between(elastic.magnitude, "elastic.magnitude", random);
  const bool uniform = elastic.distribution == "uniform";
  ControlGrid& grid = deformation_of(drawn).grid;
  grid = empty_grid(elastic, context);
  for (int axis = 0; axis < 3; ++axis) {
    const double voxels = elastic.unit == "mm" ? magnitude / context.spacing[axis] : magnitude;
    std::vector<float>& shift = grid.shift[static_cast<size_t>(axis)];
    shift.resize(static_cast<size_t>(grid.points.voxels()));
    for (float& value : shift)
      value = static_cast<float>(uniform ? random.uniform(-voxels, voxels) : voxels * random.normal());
  }
  drawn.parameters.emplace_back("elastic", concat(elastic.distribution, " magnitude ", format_number(magnitude, 4), " ",
                                                  elastic.unit, ", ", grid.points, " control points"));
}

}  // namespace

TransformEntry elastic_transform() {
  return {"elastic", "bend by a cubic B-spline of random control points", draw,
          [](const AugmentationOptions& o) { return o.elastic.enabled; }};
}

}  // namespace vox
