// Included by .cu files: the geometry of soft morphology on the GPU, and how gradients flow back through extremes.
//
// Two kinds of kernels. Forward, a thread has one place of a plane, four voxels wide where rows allow it, and goes
// along z; neighbours come through the first level cache. Backward, a block has a region of a plane, a voxel a thread
// with a rim around what it owns, and goes along z too: along x values travel by shuffles, along y through shared
// memory, along z they stay in registers. All sums have one order.
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

// Where a thread of the forward kernels is: V voxels from (y, x) on, slices z0 to z1.
struct Column {
  int y, x, z0, z1;
  int64_t first;  // of slice 0
  bool inside;
};
constexpr int kColumnThreads = 128;
template <int V>
__device__ __forceinline__ Column column_of(const Grid3& grid, int chunk) {
  const int across = grid.x / V, place = static_cast<int>(blockIdx.x) * kColumnThreads + static_cast<int>(threadIdx.x);
  Column column;
  column.y = place / across;
  column.x = place % across * V;
  column.inside = column.y < grid.y;
  column.z0 = static_cast<int>(blockIdx.y) * chunk;
  column.z1 = ::min(column.z0 + chunk, grid.z);
  column.first = blockIdx.z * grid.voxels + int64_t{column.y} * grid.x + column.x;
  return column;
}

// Extremes of the 3x3 voxels around V places of a slice.
template <class Rule, int V>
__device__ __forceinline__ Pack<V> extreme_in_plane(const float* here, const Column& column, const Grid3& grid) {
  Pack<V> middle = Pack<V>::load(here);
  const bool has_left = column.x > 0, has_right = column.x + V < grid.x;
  float left = has_left ? here[-1] : Rule::kWorst, right = has_right ? here[V] : Rule::kWorst;
  const auto take = [&](const float* row) {
    middle = extreme<Rule>(middle, Pack<V>::load(row));
    if (has_left) left = Rule::of(left, row[-1]);
    if (has_right) right = Rule::of(right, row[V]);
  };
  if (column.y > 0) take(here - grid.x);
  if (column.y + 1 < grid.y) take(here + grid.x);
  Pack<V> result;
  for (int i = 0; i < V; ++i) {
    const float before = i > 0 ? middle.at[i > 0 ? i - 1 : 0] : left;
    const float after = i + 1 < V ? middle.at[i + 1 < V ? i + 1 : i] : right;
    result.at[i] = Rule::of(Rule::of(before, middle.at[i]), after);
  }
  return result;
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
__device__ __forceinline__ bool within(int z, int begin, int end) {
  return static_cast<unsigned>(z - begin) < static_cast<unsigned>(end - begin);
}

// Through 3x3x3 voxels to the first that has the extreme value, which is sought along x, then y, then z, and found
// again along z, then y, then x. source.load and source.flow give the gradient of a voxel, sink.load and sink.take have
// what reaches one; both are told their volume once. Per step t, three slices are in the making: t is read, the
// extremes of t - 1 are known, and what reaches t - 3 is complete. Whatever a step reads was asked for one step before.
template <class Rule, class Source, class Sink>
__global__ void __launch_bounds__(32 * kFlowRows, 2)
    flow_through_cube(Source source, Sink sink, const float* values, Grid3 grid, int chunk) {
  __shared__ float lines[2][kFlowRows + 2][32], befores[2][kFlowRows + 2][32], afters[2][kFlowRows + 2][32];
  const Place at = place_of<kCubeRim>(grid, chunk);
  if (at.row < 2) {  // beyond the region
    for (const int row : {0, kFlowRows + 1}) {
      lines[at.row][row][at.lane] = Rule::kWorst;
      befores[at.row][row][at.lane] = 0;
      afters[at.row][row][at.lane] = 0;
    }
  }
  values += at.base;
  source.go_to(at);
  sink.go_to(at);
  const int slice = static_cast<int>(grid.slice), flow_begin = ::max(at.z0 - 1, 0), flow_end = ::min(at.z1 + 1, grid.z);
  int voxel = at.first + (at.z0 - 2) * slice;  // of slice t
  float next_value = at.inside && at.z0 >= 2 ? values[voxel] : Rule::kWorst, next_sum = 0;
  typename Source::Loaded next_loaded{};
  float extreme_2 = Rule::kWorst, extreme_1 = Rule::kWorst;  // of planes t - 2, t - 1
  float gradient_3 = 0, gradient_2 = 0;                      // of slices t - 3, t - 2
  unsigned steps_x = 0, steps_y = 0, steps_z = 0;            // to extremes, the latest slice in the lowest bits
  float before = 0, middle = 0, after = 0;                   // what reaches the lines of slice t - 3
  for (int t = at.z0 - 2; t < at.z1 + 3; ++t, voxel += slice) {
    const int buffer = t & 1;
    const float value = next_value, sum = next_sum;
    const typename Source::Loaded loaded = next_loaded;
    next_value = at.inside && within(t + 1, 0, grid.z) ? values[voxel + slice] : Rule::kWorst;
    if (at.inside && within(t, flow_begin, flow_end)) next_loaded = source.load(voxel);
    if (at.owner && within(t - 2, at.z0, at.z1)) next_sum = sink.load(voxel - 2 * slice);
    const Choice along_x = first_of<Rule>(__shfl_up_sync(~0u, value, 1), value, __shfl_down_sync(~0u, value, 1));
    lines[buffer][at.row + 1][at.lane] = along_x.value;
    befores[buffer][at.row + 1][at.lane] = before;
    afters[buffer][at.row + 1][at.lane] = after;
    __syncthreads();
    const float line = afters[buffer][at.row][at.lane] + middle + befores[buffer][at.row + 2][at.lane];
    const unsigned x_3 = steps_x >> 2 * kStepBits & kStepMask;  // of slice t - 3
    const float from_left = __shfl_up_sync(~0u, x_3 == kOn ? line : 0, 1);
    const float from_right = __shfl_down_sync(~0u, x_3 == kBack ? line : 0, 1);
    if (at.owner && t - 3 >= at.z0)
      sink.take(voxel - 3 * slice, sum, from_left + (x_3 == kStay ? line : 0) + from_right);
    const Choice along_y =
        first_of<Rule>(lines[buffer][at.row][at.lane], along_x.value, lines[buffer][at.row + 2][at.lane]);
    const Choice along_z = first_of<Rule>(extreme_2, extreme_1, along_y.value);
    float gradient = 0;
    if (at.inside && within(t - 1, flow_begin, flow_end)) {
      gradient = source.flow(loaded, along_z.value);
      if (at.owner && within(t - 1, at.z0, at.z1)) source.keep(voxel - slice, gradient);
    }
    const unsigned z_3 = steps_z >> kStepBits & kStepMask, z_2 = steps_z & kStepMask;
    const float plane =
        (z_3 == kOn ? gradient_3 : 0) + (z_2 == kStay ? gradient_2 : 0) + (along_z.step == kBack ? gradient : 0);
    const unsigned y_2 = steps_y >> kStepBits & kStepMask;
    before = y_2 == kBack ? plane : 0;
    middle = y_2 == kStay ? plane : 0;
    after = y_2 == kOn ? plane : 0;
    steps_x = steps_x << kStepBits | along_x.step;
    steps_y = steps_y << kStepBits | along_y.step;
    steps_z = steps_z << kStepBits | along_z.step;
    gradient_3 = gradient_2, gradient_2 = gradient;
    extreme_2 = extreme_1, extreme_1 = along_y.value;
  }
}

// Slices of a block: as few steps as the multiprocessors, two blocks on each, need for all of them.
inline int flow_chunk(const Grid3& grid, int64_t columns_of_blocks, int extra_steps) {
  const int64_t slots = 2 * multiprocessors();
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
  launch.chunk = flow_chunk(grid, volumes * launch.blocks.x * launch.blocks.y, rim == kCubeRim ? 5 : 2);
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
ColumnLaunch column_launch(const Grid3& grid, int64_t volumes) {
  ColumnLaunch launch;
  const int64_t places = grid.slice / V, wanted = int64_t{1536} * multiprocessors();
  const int64_t chunks = std::max<int64_t>(1, std::min<int64_t>((grid.z + 3) / 4, wanted / (places * volumes)));
  launch.chunk = static_cast<int>((grid.z + chunks - 1) / chunks);
  launch.blocks.x = static_cast<unsigned>((places + kColumnThreads - 1) / kColumnThreads);
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
