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
  float* state;  // null: not kept
  int level;
};

// The product of (1 - d) of the levels so far; once it would be 0 it stays as it was, with a minus sign.
__device__ __forceinline__ float next_product(float product, float delta) {
  if (delta <= 0 || product <= 0) return product;
  const float left = 1 - delta;
  return left > 0 ? product * left : -product;
}

template <int V, SoftErosion kErosion>
__global__ void __launch_bounds__(kColumnThreads)
    add_level(LevelOut out, const float* current, const float* next, Grid3 grid, int chunk) {
  const Column column = column_of<V>(grid, chunk);
  if (!column.inside) return;
  int64_t voxel = column.first + column.z0 * grid.slice;
  const auto plane = [&](int64_t at) { return extreme_in_plane<Largest, V>(next + at, column, grid); };
  Pack<V> above = column.z0 > 0 ? plane(voxel - grid.slice) : Pack<V>::filled(-kInfinity), level = plane(voxel);
  for (int z = column.z0; z < column.z1; ++z, voxel += grid.slice) {
    const Pack<V> below = z + 1 < grid.z ? plane(voxel + grid.slice) : Pack<V>::filled(-kInfinity);
    const Pack<V> opened = extreme<Largest>(extreme<Largest>(above, level), below);
    const Pack<V> value = Pack<V>::load(current + voxel);
    const bool first = out.level == 0, keeps = out.state != nullptr;
    Pack<V> skeleton = first ? Pack<V>::filled(0) : Pack<V>::load(out.skeleton + voxel), state;
    if (keeps)
      state = first ? Pack<V>::filled(kErosion == SoftErosion::kCross ? 1 : -1) : Pack<V>::load(out.state + voxel);
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

  __device__ float operator()(const Place& at, int64_t voxel, float opened, bool owned) const {
    const float delta = current[voxel] - opened;
    const float gradient = delta > 0 ? flow(at, voxel, delta) : 0;
    if (owned) kept[voxel] = gradient;
    return gradient;
  }
  __device__ float flow(const Place& at, int64_t voxel, float delta) const {
    const float found = state[voxel];
    if constexpr (kErosion == SoftErosion::kCube) return found == level ? outside(at, voxel) : 0;
    const float left = 1 - delta;
    if (found > 0) return outside(at, voxel) * (found / left);
    return left <= 0 ? outside(at, voxel) * -found : 0;  // else this level was cut off by the one that filled the voxel
  }
  __device__ float outside(const Place& at, int64_t voxel) const {
    float gradient = outer.map[voxel];
    if (outer.factors != nullptr) gradient = gradient * outer.factors[2 * at.volume] + outer.factors[2 * at.volume + 1];
    if (outer.valid != nullptr) {
      const int64_t sample = (outer.first_volume + at.volume) / outer.channels;
      gradient *= outer.valid[voxel + (sample - at.volume) * voxels];
    }
    return gradient;
  }
};

struct TakenAway {  // the opening lies below the line of d: its gradient comes with a minus
  float* gradients;
  bool first;
  __device__ void operator()(int64_t voxel, float sum) const {
    gradients[voxel] = (first ? 0 : gradients[voxel]) - sum;
  }
};

struct Level {
  const float* current;
  const float* next;
};

// Erodes the map up to a level and once more. Buffers alternate, so that what is read is never written.
Level erode_to(const SkeletonPass& pass, int level) {
  const float* at = pass.in;
  int into = 0;
  const auto step = [&](bool twice) {
    float* const out = pass.eroded[into];
    if (twice)
      soft_erode_twice_cuda(out, at, pass.batch, pass.stream);
    else
      soft_erode_cuda(out, at, pass.batch, pass.options.erosion, pass.stream);
    into = 1 - into;
    return std::exchange(at, out);
  };
  const bool pairs = pass.options.erosion == SoftErosion::kCross;
  for (int done = 0; done < level;) {
    const bool twice = pairs && level - done >= 2;
    step(twice);
    done += twice ? 2 : 1;
  }
  const float* const current = step(false);
  return {current, at};
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
  Level at{pass.in, pass.eroded[0]};
  for (int level = 0; level < levels; ++level) {
    soft_erode_cuda(const_cast<float*>(at.next), at.current, pass.batch, pass.options.erosion, pass.stream);
    run_level(pass, at, {skeleton, state, level});
    at = {at.next, at.next == pass.eroded[0] ? pass.eroded[1] : pass.eroded[0]};
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
  for (int level = levels - 1; level >= 0; --level) {
    const bool last = level == levels - 1;
    // The forward pass left the maps of its last level.
    const Level at = !last ? erode_to(pass, level)
                           : Level{level == 0 ? pass.in : pass.eroded[(level + 1) % 2], pass.eroded[level % 2]};
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
  return 4 * floats(batch);
}

void soft_skeleton_cuda(float* out, const float* in, const VolumeBatch& batch, const SoftSkeletonOptions& options,
                        float* workspace, Stream stream) {
  VOX_ASSERT(options.iterations >= 0 && out != in);
  skeleton_forward({in, batch, options, {workspace, workspace + floats(batch)}, stream}, out, nullptr);
}

void soft_skeleton_backward_cuda(float* grad_in, const float* grad_out, const float* in, const VolumeBatch& batch,
                                 const SoftSkeletonOptions& options, float* workspace, Stream stream) {
  VOX_ASSERT(options.iterations >= 0 && grad_in != grad_out);
  const int64_t size = floats(batch);
  const SkeletonPass pass{in, batch, options, {workspace, workspace + size}, stream};
  float *state = workspace + 2 * size, *scratch = workspace + 3 * size;
  skeleton_forward(pass, scratch, state);
  skeleton_backward(pass, grad_in, scratch, state, {.map = grad_out});
}

}  // namespace vox
