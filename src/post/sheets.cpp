// Height-map patching: a sheet seen from the side on which it is thinnest is a map of heights; holes in that map, if
// not too large, are closed by the smoothest surface through their rim.
#include <algorithm>
#include <array>
#include <cmath>

#include "config/params.h"
#include "kernels/components.h"
#include "post/post.h"
#include "post/touching.h"

namespace vox {
namespace {

struct PatchOptions {
  int64_t min_voxels = 1000, max_hole = 400;
  void describe(Visitor& v) {
    v.field("min_voxels", min_voxels,
            {.meaning = "Smaller pieces are no sheets", .unit = "voxels", .min = 1, .max = 1e15});
    v.field("max_hole", max_hole,
            {.meaning = "Larger holes stay, as seen from the side", .unit = "voxels", .min = 1, .max = 1e12});
  }
};

constexpr uint8_t kSpanned = 3;
constexpr int kSweeps = 400;       // of the relaxation; holes of the default size settle in a quarter of them
constexpr float kSettled = 1e-3f;  // voxels

struct Sheet {  // what is known of a piece before it is looked at from the side
  Box3 box;
  int64_t voxels = 0;
  std::array<double, 3> sum{}, squares{};

  void add(const Extent3& at) {
    box.begin = min(box.begin, at);
    box.end = max(box.end, at + Extent3{1, 1, 1});
    ++voxels;
    for (int axis = 0; axis < 3; ++axis) {
      const auto place = static_cast<double>(at[axis]);
      sum[static_cast<size_t>(axis)] += place;
      squares[static_cast<size_t>(axis)] += place * place;
    }
  }
  int thinnest_axis() const {
    std::array<double, 3> variance{};
    for (size_t axis = 0; axis < 3; ++axis) {
      const double mean = sum[axis] / static_cast<double>(voxels);
      variance[axis] = squares[axis] / static_cast<double>(voxels) - mean * mean;
    }
    return static_cast<int>(std::min_element(variance.begin(), variance.end()) - variance.begin());
  }
};

// A piece from the side: columns of the box along `axis`, row by row.
struct HeightMap {
  Extent3 origin;
  int axis = 0, row_axis = 1, column_axis = 2;
  int64_t rows = 0, columns = 0, depth = 0;
  std::vector<float> height;  // the middle of the piece in each column, from the box
  // 1: one run of the piece, 2: several, which say nothing of the height; 0: none; kSpanned: in the hole at work.
  std::vector<uint8_t> known;
  std::vector<int32_t> thickness;  // of columns with one run

  Extent3 place(int64_t column, int64_t level) const {
    Extent3 at = origin;
    at[axis] += level;
    at[row_axis] += column / columns;
    at[column_axis] += column % columns;
    return at;
  }
};

class SheetPatcher {
 public:
  SheetPatcher(PostVolume& volume, const PatchOptions& options) : volume_(volume), options_(options) {}

  void run() {
    for (const Sheet& sheet : find_sheets())
      if (const uint32_t piece = ++current_; sheet.voxels >= options_.min_voxels) patch(sheet, piece);
  }

 private:
  size_t index(const Extent3& at) const {
    return static_cast<size_t>((at.z * volume_.extent.y + at.y) * volume_.extent.x + at.x);
  }

  std::vector<Sheet> find_sheets() {
    const Extent3& e = volume_.extent;
    pieces_.resize(volume_.mask.size());
    const int64_t count = components_cpu(pieces_.data(), volume_.mask.data(), e, Connectivity::kCorners);
    std::vector<Sheet> sheets(static_cast<size_t>(count), Sheet{.box = {e, {0, 0, 0}}});
    for (int64_t z = 0; z < e.z; ++z)
      for (int64_t y = 0; y < e.y; ++y)
        for (int64_t x = 0; x < e.x; ++x)
          if (const uint32_t piece = pieces_[index({z, y, x})]) sheets[piece - 1].add({z, y, x});
    return sheets;
  }

  HeightMap look_at(const Sheet& sheet, uint32_t piece) const {
    HeightMap map{.origin = sheet.box.begin, .axis = sheet.thinnest_axis()};
    map.row_axis = map.axis == 0 ? 1 : 0;
    map.column_axis = map.axis == 2 ? 1 : 2;
    const Extent3 size = sheet.box.end - sheet.box.begin;
    map.rows = size[map.row_axis];
    map.columns = size[map.column_axis];
    map.depth = size[map.axis];
    const auto columns = static_cast<size_t>(map.rows * map.columns);
    map.height.resize(columns);
    map.known.resize(columns);
    for (size_t column = 0; column < columns; ++column) look_down(map, column, piece);
    return map;
  }

  void look_down(HeightMap& map, size_t column, uint32_t piece) const {
    int64_t runs = 0, begin = 0, end = 0;
    bool before = false;
    for (int64_t level = 0; level < map.depth; ++level) {
      const bool here = pieces_[index(map.place(static_cast<int64_t>(column), level))] == piece;
      if (here && !before) {
        ++runs;
        begin = level;
      }
      if (here) end = level + 1;
      before = here;
    }
    map.known[column] = static_cast<uint8_t>(std::min<int64_t>(runs, 2));
    if (runs != 1) return;
    map.height[column] = 0.5f * static_cast<float>(begin + end - 1);
    map.thickness.push_back(static_cast<int32_t>(end - begin));
  }

  void patch(const Sheet& sheet, uint32_t piece) {
    HeightMap map = look_at(sheet, piece);
    if (map.thickness.empty()) return;
    const auto middle = map.thickness.begin() + static_cast<int64_t>(map.thickness.size() / 2);
    std::nth_element(map.thickness.begin(), middle, map.thickness.end());
    const int32_t thickness = *middle;
    for (const std::vector<int64_t>& hole : holes_of(map)) {
      if (!span(map, hole)) continue;
      for (const int64_t column : hole) fill(map, column, thickness, piece);
    }
  }

  // Regions of empty columns, connected through edges, that do not reach the rim of the map and are not too large.
  std::vector<std::vector<int64_t>> holes_of(const HeightMap& map) const {
    std::vector<std::vector<int64_t>> holes;
    std::vector<uint8_t> seen = map.known;
    for (int64_t first = 0; first < map.rows * map.columns; ++first) {
      if (seen[static_cast<size_t>(first)]) continue;
      std::vector<int64_t> region{first};
      seen[static_cast<size_t>(first)] = 1;
      bool open = false;
      for (size_t i = 0; i < region.size(); ++i) {
        const int64_t row = region[i] / map.columns, column = region[i] % map.columns;
        open = open || row == 0 || column == 0 || row == map.rows - 1 || column == map.columns - 1;
        for (const int64_t next : around(map, region[i])) {
          if (next < 0 || seen[static_cast<size_t>(next)]) continue;
          seen[static_cast<size_t>(next)] = 1;
          region.push_back(next);
        }
      }
      if (!open && static_cast<int64_t>(region.size()) <= options_.max_hole) holes.push_back(std::move(region));
    }
    return holes;
  }

  static std::array<int64_t, 4> around(const HeightMap& map, int64_t at) {
    const int64_t row = at / map.columns, column = at % map.columns;
    return {row > 0 ? at - map.columns : -1, row + 1 < map.rows ? at + map.columns : -1, column > 0 ? at - 1 : -1,
            column + 1 < map.columns ? at + 1 : -1};
  }

  // Laplace's equation over the hole: each height becomes the mean of its neighbours', those of the rim stay. False
  // where no column of the rim has a height.
  static bool span(HeightMap& map, const std::vector<int64_t>& hole) {
    float sum = 0, count = 0;
    const auto visit_rim = [&](int64_t at) {
      if (map.known[static_cast<size_t>(at)] != 1) return;
      sum += map.height[static_cast<size_t>(at)];
      ++count;
    };
    for (const int64_t at : hole)
      for (const int64_t next : around(map, at)) visit_rim(next);
    if (count == 0) return false;
    const auto mark = [&](uint8_t as) {
      for (const int64_t at : hole) map.known[static_cast<size_t>(at)] = as;
    };
    for (const int64_t at : hole) map.height[static_cast<size_t>(at)] = sum / count;
    mark(kSpanned);
    relax(map, hole);
    mark(0);
    return true;
  }

  static void relax(HeightMap& map, const std::vector<int64_t>& hole) {
    float change = 1;
    for (int sweep = 0; sweep < kSweeps && change > kSettled; ++sweep) {
      change = 0;
      for (const int64_t at : hole) {
        float total = 0, weight = 0;
        for (const int64_t next : around(map, at)) {
          const auto n = static_cast<size_t>(next);
          if (map.known[n] != 1 && map.known[n] != kSpanned) continue;
          total += map.height[n];
          ++weight;
        }
        if (weight == 0) continue;
        float& height = map.height[static_cast<size_t>(at)];
        change = std::max(change, std::abs(total / weight - height));
        height = total / weight;
      }
    }
  }

  void fill(const HeightMap& map, int64_t column, int32_t thickness, uint32_t piece) {
    const float lowest = map.height[static_cast<size_t>(column)] - 0.5f * static_cast<float>(thickness - 1);
    const auto begin = static_cast<int64_t>(std::lround(lowest));
    for (int64_t level = begin; level < begin + thickness; ++level) {
      Extent3 at = map.place(column, level);
      if (at[map.axis] < 0 || at[map.axis] >= volume_.extent[map.axis]) continue;
      if (touches_another(pieces_, volume_.extent, at, piece)) continue;
      pieces_[index(at)] = piece;
      volume_.mask[index(at)] = 1;
    }
  }

  PostVolume& volume_;
  const PatchOptions& options_;
  std::vector<uint32_t> pieces_;
  uint32_t current_ = 0;
};

}  // namespace

PostEntry patch_sheets_post() {
  return {"patch_sheets", "Closes holes in each sheet by the smoothest surface through their rim", PostKind::kMask,
          [](const Tree& params) -> PostStep {
            const auto options = parse_params<PatchOptions>(params, "postprocess: patch_sheets");
            return {[options](PostVolume& volume) { SheetPatcher(volume, options).run(); }, {8}};
          },
          rows_of<PatchOptions>};
}

}  // namespace vox
