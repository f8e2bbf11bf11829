#include "kernels/soft_skeleton_cuda.h"

#include <algorithm>
#include <utility>

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
  constexpr bool kCube = kErosion == SoftErosion::kCube;
  const Pack<V> row = Pack<V>::load(here);
  const bool has_left = column.x > 0, has_right = column.x + V < grid.x;
  Pack<V> largest = row, least = row;
  float left = has_left ? here[-1] : -kInfinity, right = has_right ? here[V] : -kInfinity;
  float least_left = has_left ? left : kInfinity, least_right = has_right ? right : kInfinity;
  const auto take = [&](const float* there) {
    const Pack<V> pack = Pack<V>::load(there);
    largest = extreme<Largest>(largest, pack);
    least = extreme<Least>(least, pack);
    if (has_left) {
      const float value = there[-1];
      left = fmaxf(left, value);
      if (kCube) least_left = fminf(least_left, value);
    }
    if (has_right) {
      const float value = there[V];
      right = fmaxf(right, value);
      if (kCube) least_right = fminf(least_right, value);
    }
  };
  if (column.y > 0) take(here - grid.x);
  if (column.y + 1 < grid.y) take(here + grid.x);
  PlaneExtremes<V> result;
  result.middle = row;
  const Pack<V>& along = kCube ? least : row;  // what erodes along x
  for (int i = 0; i < V; ++i) {
    const int l = i > 0 ? i - 1 : 0, r = i + 1 < V ? i + 1 : i;
    result.largest.at[i] = fmaxf(fmaxf(i > 0 ? largest.at[l] : left, largest.at[i]), i + 1 < V ? largest.at[r] : right);
    result.least.at[i] =
        fminf(fminf(i > 0 ? along.at[l] : least_left, least.at[i]), i + 1 < V ? along.at[r] : least_right);
  }
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
  if (!column.inside) return;
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
    skeleton.store(out.skeleton + voxel);
    if (keeps) state.store(out.state + voxel);
    if (out.eroded != nullptr) {
      const bool cross = kErosion == SoftErosion::kCross;
      extreme<Least>(level.least,
                     extreme<Least>(cross ? above.middle : above.least, cross ? below.middle : below.least))
          .store(out.eroded + voxel);
    }
    above = level;
    level = below;
  }
}

// Gradient of d at a level, from that of the skeleton and the state; also kept where the map itself takes it.
template <SoftErosion kErosion>
struct DeltaGradient {
  const float* current;
  const float* state;
  OuterGradient outer;
  float* kept;
  int64_t voxels;
  float level;
  float scale = 1, shift = 0;  // of the volume

  struct Loaded {
    float value, state, outside;
  };
  __device__ void go_to(const Place& at) {
    current += at.base;
    state += at.base;
    kept += at.base;
    outer.map += at.base;
    if (outer.factors != nullptr) {
      scale = outer.factors[2 * at.volume];
      shift = outer.factors[2 * at.volume + 1];
    }
    if (outer.valid != nullptr) outer.valid += (outer.first_volume + at.volume) / outer.channels * voxels;
  }
  __device__ Loaded load(int voxel) const {
    const float gradient = outer.map[voxel] * scale + shift;
    return {current[voxel], state[voxel], outer.valid != nullptr ? gradient * outer.valid[voxel] : gradient};
  }
  __device__ float flow(const Loaded& loaded, float opened) const {
    const float delta = loaded.value - opened;
    return delta > 0 ? loaded.outside * share(loaded.state, delta) : 0;
  }
  __device__ float share(float found, float delta) const {
    if constexpr (kErosion == SoftErosion::kCube) return found == level ? 1 : 0;
    const float left = 1 - delta;
    if (found > 0) return __fdividef(found, left);
    return left <= 0 ? -found : 0;  // else this level was cut off by the one that filled the voxel
  }
  __device__ void keep(int voxel, float gradient) const { kept[voxel] = gradient; }
};

struct TakenAway {  // the opening lies below the line of d: its gradient comes with a minus
  float* gradients;
  bool first;
  __device__ void go_to(const Place& at) { gradients += at.base; }
  __device__ float load(int voxel) const { return first ? 0 : gradients[voxel]; }
  __device__ void take(int voxel, float before, float sum) const { gradients[voxel] = before - sum; }
};

struct Level {
  const float* current;
  const float* next;
};

int middle_level(const SkeletonPass& pass) {  // 0: none
  const int levels = level_count(pass.options);
  return pass.middle != nullptr && levels >= 4 ? levels / 2 : 0;
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

// The map of a level, eroded anew from the nearest one that is kept. `taken` is not touched; `spare` may be used.
const float* map_of(const SkeletonPass& pass, int level, const float* taken, float* spare) {
  const int middle = middle_level(pass);
  const bool from_middle = middle > 0 && level >= middle;
  const float* at = from_middle ? pass.middle : pass.in;
  int left = from_middle ? level - middle : level;
  const bool pairs = pass.options.erosion == SoftErosion::kCross;
  for (int launches = pairs ? (left + 1) / 2 : left; launches > 0; --launches) {
    float* const into = launches % 2 == 1 ? other_map(pass, taken) : spare;
    const bool twice = pairs && left >= 2;
    if (twice)
      soft_erode_twice_cuda(into, at, pass.batch, pass.stream);
    else
      soft_erode_cuda(into, at, pass.batch, pass.options.erosion, pass.stream);
    left -= twice ? 2 : 1;
    at = into;
  }
  return at;
}

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

template <SoftErosion kErosion>
void flow_to_next(const SkeletonPass& pass, const Level& level, const DeltaGradient<kErosion>& source,
                  const TakenAway& sink) {
  const Grid3 grid = grid_of(pass.batch);
  const FlowLaunch launch = flow_launch(grid, pass.batch.volumes, kCubeRim);
  flow_through_cube<Largest>
      <<<launch.blocks, launch.threads, 0, pass.stream>>>(source, sink, level.next, grid, launch.chunk);
  check_launch("gradient of openings");
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
  Level at = last_level(pass);
  for (int level = levels - 1; level >= 0; --level) {
    const bool last = level == levels - 1;
    if (!last) at = {map_of(pass, level, at.current, grad), at.current};
    const auto flow = [&](auto erosion) {
      constexpr SoftErosion kErosion = decltype(erosion)::value;
      const DeltaGradient<kErosion> source{
          at.current, state, outer, grad, pass.batch.extent.voxels(), static_cast<float>(level)};
      flow_to_next(pass, at, source, TakenAway{grad_next, last});
    };
    if (pass.options.erosion == SoftErosion::kCross)
      flow(std::integral_constant<SoftErosion, SoftErosion::kCross>{});
    else
      flow(std::integral_constant<SoftErosion, SoftErosion::kCube>{});
    soft_erode_backward_cuda(grad, grad_next, at.current, pass.batch, pass.options.erosion, Gradient::kAdd,
                             pass.stream);
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
