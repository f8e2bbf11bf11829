// Steps on connected pieces of the foreground and of the background: dust, the largest piece, cavities, and one-voxel
// holes through thin sheets.
#include <algorithm>

#include "config/params.h"
#include "post/connectivity.h"
#include "post/post.h"

namespace vox {
namespace {

struct RemoveSmallOptions : ConnectivityOptions {
  int64_t min_voxels = 1000;
  void describe(Visitor& v) {
    v.field("min_voxels", min_voxels, {.meaning = "Smaller pieces go", .unit = "voxels", .min = 1, .max = 1e15});
    ConnectivityOptions::describe(v);
  }
};

struct KeepLargestOptions : ConnectivityOptions {
  int64_t count = 1;
  void describe(Visitor& v) {
    v.field("count", count, {.meaning = "How many pieces stay", .min = 1, .max = 1e9});
    ConnectivityOptions::describe(v);
  }
};

struct NoOptions {
  void describe(Visitor&) {}
};

std::vector<int64_t> sizes_of(const RunComponents& pieces) {
  std::vector<int64_t> sizes(static_cast<size_t>(pieces.count));
  for (const Run& run : pieces.runs) sizes[run.component] += run.end - run.begin;
  return sizes;
}

// Writes `value` over the pieces for which `chosen` says so.
template <class Chosen>
void paint(PostVolume& volume, const RunComponents& pieces, uint8_t value, const Chosen& chosen) {
  for (size_t row = 0; row + 1 < pieces.rows.size(); ++row) {
    uint8_t* const line = volume.mask.data() + static_cast<int64_t>(row) * volume.extent.x;
    for (int64_t i = pieces.rows[row]; i < pieces.rows[row + 1]; ++i) {
      const Run& run = pieces.runs[static_cast<size_t>(i)];
      if (chosen(run.component)) std::fill(line + run.begin, line + run.end, value);
    }
  }
}

void remove_small(PostVolume& volume, const RemoveSmallOptions& options) {
  const RunComponents pieces = run_components(volume.mask.data(), volume.extent, options.value());
  const std::vector<int64_t> sizes = sizes_of(pieces);
  paint(volume, pieces, 0, [&](uint32_t piece) { return sizes[piece] < options.min_voxels; });
}

void keep_largest(PostVolume& volume, const KeepLargestOptions& options) {
  const RunComponents pieces = run_components(volume.mask.data(), volume.extent, options.value());
  const std::vector<int64_t> sizes = sizes_of(pieces);
  if (static_cast<int64_t>(sizes.size()) <= options.count) return;
  std::vector<uint32_t> order(sizes.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return sizes[a] > sizes[b]; });
  std::vector<bool> stays(sizes.size());
  for (int64_t i = 0; i < options.count; ++i) stays[order[static_cast<size_t>(i)]] = true;
  paint(volume, pieces, 0, [&](uint32_t piece) { return !stays[piece]; });
}

// Cavities: background that does not reach the border of the volume through faces, as scipy's binary_fill_holes.
void fill_holes(PostVolume& volume) {
  const Extent3& e = volume.extent;
  const RunComponents outside = run_components(volume.mask.data(), e, Connectivity::kFaces, Part::kBackground);
  std::vector<bool> open(static_cast<size_t>(outside.count));
  for (int64_t row = 0; row < e.z * e.y; ++row) {
    const int64_t z = row / e.y, y = row % e.y;
    const bool edge_row = z == 0 || z == e.z - 1 || y == 0 || y == e.y - 1;
    for (int64_t i = outside.rows[static_cast<size_t>(row)]; i < outside.rows[static_cast<size_t>(row) + 1]; ++i) {
      const Run& run = outside.runs[static_cast<size_t>(i)];
      if (edge_row || run.begin == 0 || run.end == e.x) open[run.component] = true;
    }
  }
  paint(volume, outside, 1, [&](uint32_t piece) { return !open[piece]; });
}

// A background voxel whose four face neighbours in one of the three planes through it are all foreground is a hole of
// one voxel through a sheet that lies in that plane.
void plug_holes(PostVolume& volume) {
  const Extent3& e = volume.extent;
  const int64_t step[3] = {e.y * e.x, e.x, 1};
  const std::vector<uint8_t> before = volume.mask;
  for (int64_t z = 0; z < e.z; ++z) {
    for (int64_t y = 0; y < e.y; ++y) {
      for (int64_t x = 0; x < e.x; ++x) {
        const Extent3 place{z, y, x};
        const int64_t voxel = (z * e.y + y) * e.x + x;
        if (before[static_cast<size_t>(voxel)]) continue;
        bool between[3];
        for (int axis = 0; axis < 3; ++axis)
          between[axis] = place[axis] > 0 && place[axis] + 1 < e[axis] &&
                          before[static_cast<size_t>(voxel - step[axis])] &&
                          before[static_cast<size_t>(voxel + step[axis])];
        volume.mask[static_cast<size_t>(voxel)] =
            (between[0] && between[1]) || (between[0] && between[2]) || (between[1] && between[2]);
      }
    }
  }
}

}  // namespace

PostEntry remove_small_post() {
  return {"remove_small", "Takes away pieces below a size", PostKind::kMask,
          [](const Tree& params) -> PostStep {
            const auto options = parse_params<RemoveSmallOptions>(params, "postprocess: remove_small");
            options.value();
            return {[options](PostVolume& volume) { remove_small(volume, options); }, {4}};
          },
          rows_of<RemoveSmallOptions>};
}

PostEntry keep_largest_post() {
  return {"keep_largest", "Keeps the largest pieces", PostKind::kMask,
          [](const Tree& params) -> PostStep {
            const auto options = parse_params<KeepLargestOptions>(params, "postprocess: keep_largest");
            options.value();
            return {[options](PostVolume& volume) { keep_largest(volume, options); }, {4}};
          },
          rows_of<KeepLargestOptions>};
}

PostEntry fill_holes_post() {
  return {"fill_holes", "Fills cavities", PostKind::kMask,
          [](const Tree& params) -> PostStep {
            parse_params<NoOptions>(params, "postprocess: fill_holes");
            return {fill_holes, {4}};
          },
          rows_of<NoOptions>};
}

PostEntry plug_holes_post() {
  return {"plug_holes", "Plugs one-voxel holes through sheets", PostKind::kMask,
          [](const Tree& params) -> PostStep {
            parse_params<NoOptions>(params, "postprocess: plug_holes");
            return {plug_holes, {1}};
          },
          rows_of<NoOptions>};
}

}  // namespace vox
