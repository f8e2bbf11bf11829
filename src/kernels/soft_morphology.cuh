// Included by .cu files: the geometry of soft morphology on the GPU, and how gradients flow back through extremes.
//
// Two kinds of kernels. Most have a thread for one place of a plane, four voxels wide where rows allow it, which goes
// along z; neighbours in the row come from the threads beside it, others through the first level cache. Where gradients
// flow back through an erosion alone, a block has a region of a plane, a voxel a thread with a rim around what it owns,
// and goes along z too: along x values travel by shuffles, along y through shared memory, along z they stay in
// registers. All sums have one order.
#pragma once

#include <limits>

#include "kernels/cuda_device.cuh"
#include "kernels/soft_morphology_cuda.h"

namespace vox::cuda {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Least {
  static __device__ __forceinline__ float of(float a, float b) { return fminf(a, b); }
  static __device__ __forceinline__ bool better(float a, float b) { return a < b; }
  static constexpr float kWorst = kInfinity;
};
struct Largest {
  static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
  static __device__ __forceinline__ bool better(float a, float b) { return a > b; }
  static constexpr float kWorst = -kInfinity;
};

__device__ __forceinline__ bool within(int z, int begin, int end) {
  return static_cast<unsigned>(z - begin) < static_cast<unsigned>(end - begin);
}

struct Grid3 {  // of one volume
  int z, y, x;
  int64_t slice, voxels;
};
inline Grid3 grid_of(const VolumeBatch& batch) {
  const Extent3& e = batch.extent;
  VOX_CHECK(e.voxels() < (int64_t{1} << 30), "a volume of ", e, " is too large for soft morphology on the GPU");
  return {static_cast<int>(e.z), static_cast<int>(e.y), static_cast<int>(e.x), e.y * e.x, e.voxels()};
}

template <int V>
struct Pack {
  float at[V];
  __device__ __forceinline__ static Pack filled(float value) {
    Pack pack;
    for (int i = 0; i < V; ++i) pack.at[i] = value;
    return pack;
  }
  __device__ __forceinline__ static Pack load(const float* from) {
    Pack pack;
    if constexpr (V == 4)
      *reinterpret_cast<float4*>(pack.at) = *reinterpret_cast<const float4*>(from);
    else
      for (int i = 0; i < V; ++i) pack.at[i] = from[i];
    return pack;
  }
  __device__ __forceinline__ void store(float* to) const {
    if constexpr (V == 4)
      *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(at);
    else
      for (int i = 0; i < V; ++i) to[i] = at[i];
  }
};
template <class Rule, int V>
__device__ __forceinline__ Pack<V> extreme(Pack<V> a, const Pack<V>& b) {
  for (int i = 0; i < V; ++i) a.at[i] = Rule::of(a.at[i], b.at[i]);
  return a;
}

// Where a thread is: V voxels from (y, x) on, slices z0 to z1. Lanes at either end of a warp have places that belong to
// other warps: they read, so that each owner has the neighbours of its row in the lanes beside it, and write nothing.
// No lane may leave before the others.
struct Column {
  int y, x, z0, z1;
  int64_t first;  // of slice 0
  bool owner, has_left, has_right;
};
constexpr int kColumnThreads = 128;
template <int V>
constexpr int kColumnRim = V == 1 ? 2 : 1;  // lanes, for two voxels at least
template <int V>
constexpr int kColumnOwners = 32 - 2 * kColumnRim<V>;

template <int V>
__device__ __forceinline__ Column column_of(const Grid3& grid, int chunk) {
  const int across = grid.x / V, places = across * grid.y, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(blockIdx.x) * (kColumnThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const int wanted = warp * kColumnOwners<V> + lane - kColumnRim<V>, place = ::min(::max(wanted, 0), places - 1);
  Column column;
  column.y = place / across;
  column.x = place % across * V;
  column.z0 = static_cast<int>(blockIdx.y) * chunk;
  column.z1 = ::min(column.z0 + chunk, grid.z);
  column.first = blockIdx.z * grid.voxels + int64_t{column.y} * grid.x + column.x;
  column.owner = lane >= kColumnRim<V> && lane < 32 - kColumnRim<V> && wanted < places;
  column.has_left = column.x > 0;
  column.has_right = column.x + V < grid.x;
  return column;
}

// What the thread of the place before, or after, in the row has; `beyond` where there is none.
__device__ __forceinline__ float from_left(float value, const Column& column, float beyond) {
  const float got = __shfl_up_sync(~0u, value, 1);
  return column.has_left ? got : beyond;
}
__device__ __forceinline__ float from_right(float value, const Column& column, float beyond) {
  const float got = __shfl_down_sync(~0u, value, 1);
  return column.has_right ? got : beyond;
}

// V voxels of a row and one on either side.
template <int V>
struct WideRow {
  float at[V + 2];
};
template <int V>
__device__ __forceinline__ WideRow<V> widened(const Pack<V>& row, const Column& column, float beyond) {
  WideRow<V> wide;
  wide.at[0] = from_left(row.at[V - 1], column, beyond);
#pragma unroll
  for (int i = 0; i < V; ++i) wide.at[i + 1] = row.at[i];
  wide.at[V + 1] = from_right(row.at[0], column, beyond);
  return wide;
}
// The same voxels of a row so many steps along y, or `otherwise` beyond the volume.
template <int V>
__device__ __forceinline__ Pack<V> row_beside(const float* here, const Column& column, const Grid3& grid, int step,
                                              const Pack<V>& otherwise) {
  return within(column.y + step, 0, grid.y) ? Pack<V>::load(here + step * grid.x) : otherwise;
}

// Extremes along x.
template <class Rule, int V>
__device__ __forceinline__ Pack<V> extreme_in_row(const Pack<V>& row, const Column& column) {
  const WideRow<V> wide = widened<V>(row, column, Rule::kWorst);
  Pack<V> result;
#pragma unroll
  for (int i = 0; i < V; ++i) result.at[i] = Rule::of(Rule::of(wide.at[i], wide.at[i + 1]), wide.at[i + 2]);
  return result;
}
// Extremes of the 3x3 voxels around V places of a slice.
template <class Rule, int V>
__device__ __forceinline__ Pack<V> extreme_in_plane(const float* here, const Column& column, const Grid3& grid) {
  const Pack<V> middle = Pack<V>::load(here);
  const Pack<V> before = row_beside<V>(here, column, grid, -1, middle),
                after = row_beside<V>(here, column, grid, 1, middle);
  return extreme_in_row<Rule>(extreme<Rule>(extreme<Rule>(middle, before), after), column);
}

enum Step : unsigned { kBack, kStay, kOn };  // along an axis
constexpr unsigned kStepBits = 2, kStepMask = 3;
struct Choice {
  float value;
  unsigned step;  // where it is; of equal ones the first
};
template <class Rule>
__device__ __forceinline__ Choice first_of(float a, float b, float c) {
  const bool second = Rule::better(b, a);
  const float best = second ? b : a;
  const bool third = Rule::better(c, best);
  return {third ? c : best, third ? kOn : second ? kStay : kBack};
}

constexpr int kFlowRows = 24;
constexpr int kCubeRim = 2, kCrossRim = 1;

// Where a thread of the backward kernels is. Places beyond the volume exist; only owners write. Offsets within a volume
// are 32 bits wide: these kernels are bound by instructions, and wider ones cost several each.
struct Place {
  int volume, lane, row, y, x, z0, z1;
  int64_t base;  // of the volume
  int first;     // of slice 0, within the volume
  bool inside, owner;
};
template <int kRim>
__device__ __forceinline__ Place place_of(const Grid3& grid, int chunk) {
  Place place;
  place.lane = static_cast<int>(threadIdx.x);
  place.row = static_cast<int>(threadIdx.y);
  place.x = static_cast<int>(blockIdx.x) * (32 - 2 * kRim) + place.lane - kRim;
  place.y = static_cast<int>(blockIdx.y) * (kFlowRows - 2 * kRim) + place.row - kRim;
  const int chunks = (grid.z + chunk - 1) / chunk;
  place.volume = static_cast<int>(blockIdx.z) / chunks;
  place.z0 = static_cast<int>(blockIdx.z) % chunks * chunk;
  place.z1 = ::min(place.z0 + chunk, grid.z);
  place.base = place.volume * grid.voxels;
  place.first = place.y * grid.x + place.x;
  place.inside = place.x >= 0 && place.x < grid.x && place.y >= 0 && place.y < grid.y;
  place.owner =
      place.inside && place.lane >= kRim && place.lane < 32 - kRim && place.row >= kRim && place.row < kFlowRows - kRim;
  return place;
}

// Slices of a block: as few steps as the multiprocessors, with so many blocks on each, need for all of them.
inline int flow_chunk(const Grid3& grid, int64_t columns_of_blocks, int extra_steps, int per_multiprocessor) {
  const int64_t slots = int64_t{per_multiprocessor} * multiprocessors();
  int64_t best_steps = std::numeric_limits<int64_t>::max();
  int best = grid.z;
  for (int chunks = 1; chunks <= (grid.z + 3) / 4; ++chunks) {
    const int chunk = (grid.z + chunks - 1) / chunks;
    const int64_t rounds = (columns_of_blocks * chunks + slots - 1) / slots, steps = rounds * (chunk + extra_steps);
    if (steps < best_steps) best_steps = steps, best = chunk;
  }
  return best;
}

struct FlowLaunch {
  dim3 blocks;
  dim3 threads{32, kFlowRows};
  int chunk;
};
inline FlowLaunch flow_launch(const Grid3& grid, int64_t volumes, int rim) {
  FlowLaunch launch;
  const int across = 32 - 2 * rim, down = kFlowRows - 2 * rim;
  launch.blocks.x = static_cast<unsigned>((grid.x + across - 1) / across);
  launch.blocks.y = static_cast<unsigned>((grid.y + down - 1) / down);
  launch.chunk = flow_chunk(grid, volumes * launch.blocks.x * launch.blocks.y, rim == kCubeRim ? 5 : 2, 2);
  const int64_t deep = volumes * ((grid.z + launch.chunk - 1) / launch.chunk);
  VOX_ASSERT(deep < 65536 && launch.blocks.y < 65536);
  launch.blocks.z = static_cast<unsigned>(deep);
  return launch;
}

struct ColumnLaunch {
  dim3 blocks;
  int chunk;
};
template <int V>
unsigned blocks_of_columns(const Grid3& grid) {
  constexpr int64_t kOwners = int64_t{kColumnThreads / 32} * kColumnOwners<V>;
  return static_cast<unsigned>((grid.slice / V + kOwners - 1) / kOwners);
}
template <int V>
ColumnLaunch column_launch(const Grid3& grid, int64_t volumes) {
  ColumnLaunch launch;
  const int64_t places = grid.slice / V, wanted = int64_t{1536} * multiprocessors();
  const int64_t chunks = std::max<int64_t>(1, std::min<int64_t>((grid.z + 3) / 4, wanted / (places * volumes)));
  launch.chunk = static_cast<int>((grid.z + chunks - 1) / chunks);
  launch.blocks.x = blocks_of_columns<V>(grid);
  launch.blocks.y = static_cast<unsigned>((grid.z + launch.chunk - 1) / launch.chunk);
  VOX_ASSERT(launch.blocks.y < 65536 && volumes < 65536);
  launch.blocks.z = static_cast<unsigned>(volumes);
  return launch;
}
// For kernels that need many registers, or read two slices beyond those they write.
template <int V>
ColumnLaunch column_launch_in_one_go(const Grid3& grid, int64_t volumes, int per_multiprocessor) {
  ColumnLaunch launch;
  launch.blocks.x = blocks_of_columns<V>(grid);
  launch.chunk = flow_chunk(grid, volumes * launch.blocks.x, 2, per_multiprocessor);
  launch.blocks.y = static_cast<unsigned>((grid.z + launch.chunk - 1) / launch.chunk);
  VOX_ASSERT(launch.blocks.y < 65536 && volumes < 65536);
  launch.blocks.z = static_cast<unsigned>(volumes);
  return launch;
}
// Calls f with the number of voxels that a thread takes at once.
template <class F>
void with_width(const Grid3& grid, F&& f) {
  if (grid.x % 4 == 0)
    f(std::integral_constant<int, 4>{});
  else
    f(std::integral_constant<int, 1>{});
}

}  // namespace vox::cuda
