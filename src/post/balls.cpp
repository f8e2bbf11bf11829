// Closing and opening with a ball, by exact distances: growing by r is everything within r of the mask. Beyond the
// border of the volume nothing is known: it neither grows inwards nor eats away.
#include <algorithm>
#include <cmath>

#include "config/params.h"
#include "kernels/edt.h"
#include "post/connectivity.h"
#include "post/post.h"
#include "post/touching.h"

namespace vox {
namespace {

struct BallOptions {
  double radius = 1;
  void describe(Visitor& v) {
    v.field("radius", radius, {.meaning = "Of the ball", .unit = "voxels", .min = 0, .max = 1000, .above_min = true});
  }
};

struct SheetOptions : BallOptions {
  int64_t min_voxels = 1;
  void describe(Visitor& v) {
    BallOptions::describe(v);
    v.field("min_voxels", min_voxels,
            {.meaning = "Smaller pieces are left alone", .unit = "voxels", .min = 1, .max = 1e15});
  }
};

// Where a voxel of `mask` (0 or 1) with value `from` lies within the radius, the result is `from`.
void spread(std::vector<uint8_t>& mask, const Extent3& extent, uint8_t from, double radius) {
  std::vector<uint8_t> other(mask.size());
  for (size_t i = 0; i < mask.size(); ++i) other[i] = mask[i] != from;
  std::vector<float> squared(mask.size());
  // The limit is cheap to keep just above the radius, and never mistaken for it.
  edt_squared_cpu(squared.data(), other.data(), extent, {.spacing = {}, .limit_mm = radius + 1});
  const auto reach = static_cast<float>(radius * radius * (1 + 1e-6));
  for (size_t i = 0; i < mask.size(); ++i)
    if (squared[i] <= reach) mask[i] = from;
}

// Closes one piece, which lies in `box`. What is added gets its number; what touches another piece, or what was added
// to one, is left out.
void close_piece(PostVolume& volume, std::vector<uint32_t>& pieces, uint32_t piece, Box3 box, double radius) {
  const Extent3& e = volume.extent;
  const auto margin = static_cast<int64_t>(std::ceil(radius)) + 1;
  for (int axis = 0; axis < 3; ++axis) {
    box.begin[axis] = std::max<int64_t>(0, box.begin[axis] - margin);
    box.end[axis] = std::min(e[axis], box.end[axis] + margin);
  }
  const Extent3 size = box.end - box.begin;
  std::vector<uint8_t> own(static_cast<size_t>(size.voxels()));
  const auto visit = [&](const auto& act) {
    size_t i = 0;
    for (int64_t z = box.begin.z; z < box.end.z; ++z)
      for (int64_t y = box.begin.y; y < box.end.y; ++y)
        for (int64_t x = box.begin.x; x < box.end.x; ++x, ++i)
          act(own[i], static_cast<size_t>((z * e.y + y) * e.x + x), Extent3{z, y, x});
  };
  visit([&](uint8_t& here, size_t voxel, const Extent3&) { here = pieces[voxel] == piece; });
  spread(own, size, 1, radius);
  spread(own, size, 0, radius);
  visit([&](uint8_t here, size_t voxel, const Extent3& at) {
    if (!here || pieces[voxel] != 0 || touches_another(pieces, e, at, piece)) return;
    pieces[voxel] = piece;
    volume.mask[voxel] = 1;
  });
}

// Each piece is closed by itself, so that two sheets that nearly touch are not glued together.
void close_sheets(PostVolume& volume, const SheetOptions& options) {
  const Extent3& e = volume.extent;
  std::vector<uint32_t> pieces(volume.mask.size());
  const int64_t count = components_cpu(pieces.data(), volume.mask.data(), e, Connectivity::kCorners);
  std::vector<Box3> boxes(static_cast<size_t>(count) + 1, Box3{e, {0, 0, 0}});
  std::vector<int64_t> sizes(boxes.size());
  int64_t voxel = 0;
  for (int64_t z = 0; z < e.z; ++z)
    for (int64_t y = 0; y < e.y; ++y)
      for (int64_t x = 0; x < e.x; ++x, ++voxel) {
        const uint32_t piece = pieces[static_cast<size_t>(voxel)];
        if (piece == 0) continue;
        ++sizes[piece];
        Box3& box = boxes[piece];
        box.begin = min(box.begin, {z, y, x});
        box.end = max(box.end, {z + 1, y + 1, x + 1});
      }
  for (uint32_t piece = 1; piece < boxes.size(); ++piece)
    if (sizes[piece] >= options.min_voxels) close_piece(volume, pieces, piece, boxes[piece], options.radius);
}

}  // namespace

PostEntry close_post() {
  return {"close", "Closes gaps with a ball", PostKind::kMask,
          [](const Tree& params) -> PostStep {
            const auto options = parse_params<BallOptions>(params, "postprocess: close");
            return {[options](PostVolume& volume) {
                      spread(volume.mask, volume.extent, 1, options.radius);
                      spread(volume.mask, volume.extent, 0, options.radius);
                    },
                    {5}};
          },
          rows_of<BallOptions>};
}

PostEntry open_post() {
  return {"open", "Takes away what a ball does not fit into", PostKind::kMask,
          [](const Tree& params) -> PostStep {
            const auto options = parse_params<BallOptions>(params, "postprocess: open");
            return {[options](PostVolume& volume) {
                      spread(volume.mask, volume.extent, 0, options.radius);
                      spread(volume.mask, volume.extent, 1, options.radius);
                    },
                    {5}};
          },
          rows_of<BallOptions>};
}

PostEntry close_sheets_post() {
  return {"close_sheets", "Closes each piece by itself, so that neighbours are not glued together", PostKind::kMask,
          [](const Tree& params) -> PostStep {
            const auto options = parse_params<SheetOptions>(params, "postprocess: close_sheets");
            return {[options](PostVolume& volume) { close_sheets(volume, options); }, {10}};
          },
          rows_of<SheetOptions>};
}

}  // namespace vox
