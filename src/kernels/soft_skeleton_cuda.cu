#include "kernels/soft_skeleton_cuda.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/skeleton_level_cuda.h"
#include "kernels/soft_morphology.cuh"

namespace vox {

using namespace cuda;

namespace {

int level_count(const SoftSkeletonOptions& options) {
  return options.iterations + (options.erosion == SoftErosion::kCross ? 1 : 0);
}

struct LevelOut {
  float* skeleton;
  float* state;   // null: not kept
  float* eroded;  // the map after the next, which may replace the current one; null: not wanted
  int level;
};

// The product of (1 - d) of the levels so far; once it would be 0 it stays as it was, with a minus sign.
__device__ __forceinline__ float next_product(float product, float delta) {
  if (delta <= 0 || product <= 0) return product;
  const float left = 1 - delta;
  return left > 0 ? product * left : -product;
}

// What a slice of a map gives to dilation and to erosion.
template <int V>
struct PlaneExtremes {
  Pack<V> largest, least, middle;  // least: of the cross or of all; middle: the voxels themselves
};
template <int V, SoftErosion kErosion>
__device__ __forceinline__ PlaneExtremes<V> plane_extremes(const float* here, const Column& column, const Grid3& grid) {
  const Pack<V> row = Pack<V>::load(here);
  const Pack<V> before = row_beside<V>(here, column, grid, -1, row), after = row_beside<V>(here, column, grid, 1, row);
  const Pack<V> largest = extreme<Largest>(extreme<Largest>(row, before), after);
  const Pack<V> least = extreme<Least>(extreme<Least>(row, before), after);
  PlaneExtremes<V> result;
  result.middle = row;
  result.largest = extreme_in_row<Largest>(largest, column);
  if constexpr (kErosion == SoftErosion::kCube)
    result.least = extreme_in_row<Least>(least, column);
  else
    result.least = extreme<Least>(least, extreme_in_row<Least>(row, column));
  return result;
}
template <int V>
__device__ __forceinline__ PlaneExtremes<V> no_plane() {
  return {Pack<V>::filled(-kInfinity), Pack<V>::filled(kInfinity), Pack<V>::filled(kInfinity)};
}

// Adds a level to the skeleton from the map there and the next one, which is also eroded once more.
template <int V, SoftErosion kErosion>
__global__ void __launch_bounds__(kColumnThreads)
    add_level(LevelOut out, const float* current, const float* next, Grid3 grid, int chunk) {
  const Column column = column_of<V>(grid, chunk);
  int64_t voxel = column.first + column.z0 * grid.slice;
  const auto plane = [&](int64_t at) { return plane_extremes<V, kErosion>(next + at, column, grid); };
  const bool first = out.level == 0, keeps = out.state != nullptr;
  PlaneExtremes<V> above = column.z0 > 0 ? plane(voxel - grid.slice) : no_plane<V>(), level = plane(voxel);
  for (int z = column.z0; z < column.z1; ++z, voxel += grid.slice) {
    const Pack<V> value = Pack<V>::load(current + voxel);
    Pack<V> skeleton = first ? Pack<V>::filled(0) : Pack<V>::load(out.skeleton + voxel), state;
    if (keeps)
      state = first ? Pack<V>::filled(kErosion == SoftErosion::kCross ? 1 : -1) : Pack<V>::load(out.state + voxel);
    const PlaneExtremes<V> below = z + 1 < grid.z ? plane(voxel + grid.slice) : no_plane<V>();
    const Pack<V> opened = extreme<Largest>(extreme<Largest>(above.largest, level.largest), below.largest);
    for (int i = 0; i < V; ++i) {
      const float delta = fmaxf(value.at[i] - opened.at[i], 0), before = skeleton.at[i];
      const float grown = kErosion == SoftErosion::kCross ? delta - before * delta : delta - before;
      skeleton.at[i] = before + fmaxf(grown, 0);
      if (!keeps) continue;
      if constexpr (kErosion == SoftErosion::kCross)
        state.at[i] = next_product(state.at[i], delta);
      else
        state.at[i] = delta > 0 && grown > 0 ? static_cast<float>(out.level) : state.at[i];
    }
    if (column.owner) skeleton.store(out.skeleton + voxel);
    if (column.owner && keeps) state.store(out.state + voxel);
    if (column.owner && out.eroded != nullptr) {
      const bool cross = kErosion == SoftErosion::kCross;
      extreme<Least>(level.least,
                     extreme<Least>(cross ? above.middle : above.least, cross ? below.middle : below.least))
          .store(out.eroded + voxel);
    }
    above = level;
    level = below;
  }
}

struct Level {
  const float* current;
  float* next;
};

// Whose map is kept from forward to backward; 0: none. So far towards the end, because from there on the maps that lie
// before it are kept in its place once it is done with.
int middle_level(const SkeletonPass& pass) {
  const int levels = level_count(pass.options);
  return pass.middle != nullptr && levels >= 4 ? 2 * levels / 3 : 0;
}
float* other_map(const SkeletonPass& pass, const float* taken) {
  return pass.eroded[taken == pass.eroded[0] ? 1 : 0];
}
// Where a forward pass puts the map after the next: over the current one, which it needs no more, unless that is kept.
float* map_after(const SkeletonPass& pass, int level, const Level& at) {
  return level + 2 == middle_level(pass) ? pass.middle : other_map(pass, at.next);
}
Level last_level(const SkeletonPass& pass) {
  Level at{pass.in, pass.eroded[0]};
  for (int level = 0; level + 1 < level_count(pass.options); ++level) at = {at.next, map_after(pass, level, at)};
  return at;
}

// The maps of a backward pass, which goes down from the last level: each is eroded anew from the nearest one that is
// kept, and the last stop on the way there is kept for a later level where a map is free.
class LevelMaps {
 public:
  explicit LevelMaps(const SkeletonPass& pass) : pass_(pass), at_(last_level(pass)) {
    if (middle_level(pass) > 0) kept_ = {pass.middle, middle_level(pass)};
    for (float* map : {pass.eroded[0], pass.eroded[1], pass.middle})
      if (map != nullptr && map != at_.current && map != at_.next && map != kept_.map) free_.push_back(map);
    own_ = at_.current == pass.in ? nullptr : pass.eroded[at_.current == pass.eroded[0] ? 0 : 1];
  }
  const Level& at() const { return at_; }

  void go_down_to(int level, float* spare) {
    free_.push_back(std::exchange(at_.next, own_));
    if (level == 0) {
      at_.current = pass_.in;
    } else if (level == kept_.level) {
      at_.current = own_ = std::exchange(kept_, {}).map;
    } else {
      at_.current = own_ = eroded_to(level, spare);
    }
  }

 private:
  struct Kept {
    float* map = nullptr;
    int level = 0;
  };
  float* take_free() {
    VOX_ASSERT(!free_.empty());
    float* const map = free_.back();
    free_.pop_back();
    return map;
  }
  float* eroded_to(int level, float* spare) {
    const bool pairs = pass_.options.erosion == SoftErosion::kCross;
    const float* from = kept_.map != nullptr ? kept_.map : pass_.in;
    int reached = kept_.level;
    float* const result = take_free();
    for (int left = pairs ? (level - reached + 1) / 2 : level - reached; left > 0; --left) {
      const bool twice = pairs && level - reached >= 2, keeps = left == 2 && kept_.map == nullptr && !free_.empty();
      float* const into = left % 2 == 1 ? result : keeps ? take_free() : spare;
      if (twice)
        soft_erode_twice_cuda(into, from, pass_.batch, pass_.stream);
      else
        soft_erode_cuda(into, from, pass_.batch, pass_.options.erosion, pass_.stream);
      reached += twice ? 2 : 1;
      if (keeps) kept_ = {into, reached};
      from = into;
    }
    return result;
  }

  const SkeletonPass& pass_;
  Level at_;
  float* own_;  // the map of this level, where it is not the input
  Kept kept_;
  std::vector<float*> free_;
};

void run_level(const SkeletonPass& pass, const Level& level, const LevelOut& out) {
  const Grid3 grid = grid_of(pass.batch);
  with_width(grid, [&](auto width) {
    constexpr int V = decltype(width)::value;
    const ColumnLaunch launch = column_launch<V>(grid, pass.batch.volumes);
    const auto kernel = pass.options.erosion == SoftErosion::kCross ? add_level<V, SoftErosion::kCross>
                                                                    : add_level<V, SoftErosion::kCube>;
    kernel<<<launch.blocks, kColumnThreads, 0, pass.stream>>>(out, level.current, level.next, grid, launch.chunk);
  });
  check_launch("soft skeleton");
}

bool empty(const VolumeBatch& batch) {
  return batch.volumes == 0 || batch.extent.voxels() == 0;
}
int64_t floats(const VolumeBatch& batch) {  // of a map, so that the one behind it is aligned as this one
  return (batch.volumes * batch.extent.voxels() + 3) / 4 * 4;
}

}  // namespace

void skeleton_forward(const SkeletonPass& pass, float* skeleton, float* state) {
  const int levels = level_count(pass.options);
  if (empty(pass.batch)) return;
  if (levels == 0) {
    const size_t bytes = sizeof(float) * static_cast<size_t>(pass.batch.volumes * pass.batch.extent.voxels());
    return check(cudaMemsetAsync(skeleton, 0, bytes, pass.stream), "soft skeleton");
  }
  soft_erode_cuda(pass.eroded[0], pass.in, pass.batch, pass.options.erosion, pass.stream);
  Level at{pass.in, pass.eroded[0]};
  for (int level = 0; level < levels; ++level) {
    float* const after = level + 1 < levels ? map_after(pass, level, at) : nullptr;
    run_level(pass, at, {skeleton, state, after, level});
    if (after != nullptr) at = {at.next, after};
  }
}

void skeleton_backward(const SkeletonPass& pass, float* grad_in, float* scratch, const float* state,
                       const OuterGradient& outer) {
  const int levels = level_count(pass.options);
  if (empty(pass.batch)) return;
  if (levels == 0) {
    const size_t bytes = sizeof(float) * static_cast<size_t>(pass.batch.volumes * pass.batch.extent.voxels());
    return check(cudaMemsetAsync(grad_in, 0, bytes, pass.stream), "gradient of a soft skeleton");
  }
  // Gradients of the map at this level and at the next: level 0 ends up in grad_in.
  float *grad = levels % 2 == 1 ? grad_in : scratch, *grad_next = levels % 2 == 1 ? scratch : grad_in;
  LevelMaps maps(pass);
  for (int level = levels - 1; level >= 0; --level) {
    const bool last = level == levels - 1;
    if (!last) maps.go_down_to(level, grad);
    const Level& at = maps.at();
    skeleton_level_backward({at.current, at.next, state, outer, grad, grad_next, level, last}, pass.batch,
                            pass.options.erosion, pass.stream);
    std::swap(grad, grad_next);
  }
}

int64_t soft_skeleton_workspace(const VolumeBatch& batch) {
  return 2 * floats(batch);
}
int64_t soft_skeleton_backward_workspace(const VolumeBatch& batch) {
  return 5 * floats(batch);
}

void soft_skeleton_cuda(float* out, const float* in, const VolumeBatch& batch, const SoftSkeletonOptions& options,
                        float* workspace, Stream stream) {
  VOX_ASSERT(options.iterations >= 0 && out != in);
  skeleton_forward({in, batch, options, {workspace, workspace + floats(batch)}, nullptr, stream}, out, nullptr);
}

void soft_skeleton_backward_cuda(float* grad_in, const float* grad_out, const float* in, const VolumeBatch& batch,
                                 const SoftSkeletonOptions& options, float* workspace, Stream stream) {
  VOX_ASSERT(options.iterations >= 0 && grad_in != grad_out);
  const int64_t size = floats(batch);
  const SkeletonPass pass{in, batch, options, {workspace, workspace + size}, workspace + 4 * size, stream};
  float *state = workspace + 2 * size, *scratch = workspace + 3 * size;
  skeleton_forward(pass, scratch, state);
  skeleton_backward(pass, grad_in, scratch, state, {.map = grad_out});
}

}  // namespace vox
