#include "kernels/soft_morphology_cuda.h"

#include <algorithm>

#include "kernels/soft_morphology.cuh"

namespace vox {

using namespace cuda;

namespace {

template <int V>
__global__ void __launch_bounds__(kColumnThreads) erode_by_cross(float* out, const float* in, Grid3 grid, int chunk) {
  const Column column = column_of<V>(grid, chunk);
  const float* here = in + column.first + column.z0 * grid.slice;
  float* to = out + column.first + column.z0 * grid.slice;
  Pack<V> above = column.z0 > 0 ? Pack<V>::load(here - grid.slice) : Pack<V>::filled(kInfinity);
  Pack<V> level = Pack<V>::load(here);
  for (int z = column.z0; z < column.z1; ++z, here += grid.slice, to += grid.slice) {
    const Pack<V> below = z + 1 < grid.z ? Pack<V>::load(here + grid.slice) : Pack<V>::filled(kInfinity);
    Pack<V> result = extreme<Least>(extreme<Least>(above, level), below);
    result = extreme<Least>(result, row_beside<V>(here, column, grid, -1, level));
    result = extreme<Least>(result, row_beside<V>(here, column, grid, 1, level));
    result = extreme<Least>(result, extreme_in_row<Least>(level, column));
    if (column.owner) result.store(to);
    above = level;
    level = below;
  }
}

template <int V>
__global__ void __launch_bounds__(kColumnThreads) erode_by_cube(float* out, const float* in, Grid3 grid, int chunk) {
  const Column column = column_of<V>(grid, chunk);
  const float* here = in + column.first + column.z0 * grid.slice;
  float* to = out + column.first + column.z0 * grid.slice;
  const auto plane = [&](const float* at) { return extreme_in_plane<Least, V>(at, column, grid); };
  Pack<V> above = column.z0 > 0 ? plane(here - grid.slice) : Pack<V>::filled(kInfinity), level = plane(here);
  for (int z = column.z0; z < column.z1; ++z, here += grid.slice, to += grid.slice) {
    const Pack<V> below = z + 1 < grid.z ? plane(here + grid.slice) : Pack<V>::filled(kInfinity);
    const Pack<V> result = extreme<Least>(extreme<Least>(above, level), below);
    if (column.owner) result.store(to);
    above = level;
    level = below;
  }
}

// The least of the voxels at most 0, 1 and 2 faces away, in a slice.
template <int V>
struct Diamonds {
  Pack<V> of[3];
};
template <int V>
__device__ __forceinline__ Diamonds<V> diamonds(const float* here, const Column& column, const Grid3& grid) {
  const Pack<V> middle = Pack<V>::load(here), none = Pack<V>::filled(kInfinity);
  float row[V + 4];  // from two voxels before the first to two after the last
#pragma unroll
  for (int i = 0; i < V; ++i) row[i + 2] = middle.at[i];
  row[1] = from_left(middle.at[V - 1], column, kInfinity);
  row[V + 2] = from_right(middle.at[0], column, kInfinity);
  if constexpr (V > 1) {
    row[0] = from_left(middle.at[V - 2], column, kInfinity);
    row[V + 3] = from_right(middle.at[1], column, kInfinity);
  } else {
    const float before = __shfl_up_sync(~0u, middle.at[0], 2), after = __shfl_down_sync(~0u, middle.at[0], 2);
    row[0] = column.x >= 2 ? before : kInfinity;
    row[V + 3] = column.x + 2 < grid.x ? after : kInfinity;
  }
  const auto rows = [&](int step) {
    return extreme<Least>(row_beside<V>(here, column, grid, -step, none),
                          row_beside<V>(here, column, grid, step, none));
  };
  const WideRow<V> beside = widened<V>(rows(1), column, kInfinity);
  const Pack<V> farthest = rows(2);
  Diamonds<V> result;
  for (int i = 0; i < V; ++i) {
    result.of[0].at[i] = row[i + 2];
    result.of[1].at[i] = fminf(fminf(row[i + 1], row[i + 2]), fminf(row[i + 3], beside.at[i + 1]));
    result.of[2].at[i] = fminf(fminf(fminf(result.of[1].at[i], farthest.at[i]), fminf(row[i], row[i + 4])),
                               fminf(beside.at[i], beside.at[i + 2]));
  }
  return result;
}

template <int V>
__global__ void __launch_bounds__(kColumnThreads) erode_twice(float* out, const float* in, Grid3 grid, int chunk) {
  const Column column = column_of<V>(grid, chunk);
  const Pack<V> none = Pack<V>::filled(kInfinity);
  Pack<V> of_2 = none, of_1 = none, of_0 = none, of_next = none;  // slices t - 2, t - 1, t and t + 1, so far
  for (int t = column.z0 - 2; t < column.z1 + 2; ++t) {
    Pack<V> of_after = none;
    if (t >= 0 && t < grid.z) {
      const Diamonds<V> slice = diamonds<V>(in + column.first + t * grid.slice, column, grid);
      of_2 = extreme<Least>(of_2, slice.of[0]);
      of_1 = extreme<Least>(of_1, slice.of[1]);
      of_0 = extreme<Least>(of_0, slice.of[2]);
      of_next = extreme<Least>(of_next, slice.of[1]);
      of_after = slice.of[0];
    }
    if (column.owner && t - 2 >= column.z0) of_2.store(out + column.first + (t - 2) * grid.slice);
    of_2 = of_1, of_1 = of_0, of_0 = of_next, of_next = of_after;
  }
}

// What the erosion by the cross sends to the seven voxels; where axes are equal they share, halves being exact.
struct Shares {
  float above = 0, before = 0, left = 0, here = 0, right = 0, after = 0, below = 0;
};
struct Around {
  float above, before, left, here, right, after, below;
};
__device__ __forceinline__ Shares divide(float gradient, const Around& v) {
  const auto share = [](float mine, float other) { return mine < other ? 1.0f : mine == other ? 0.5f : 0.0f; };
  const Choice z = first_of<Least>(v.above, v.here, v.below), y = first_of<Least>(v.before, v.here, v.after),
               x = first_of<Least>(v.left, v.here, v.right);
  const float of_x = gradient * share(x.value, fminf(z.value, y.value)), of_zy = gradient - of_x;
  const float of_z = of_zy * share(z.value, y.value), of_y = of_zy - of_z;
  Shares shares;
  shares.above = z.step == kBack ? of_z : 0;
  shares.below = z.step == kOn ? of_z : 0;
  shares.before = y.step == kBack ? of_y : 0;
  shares.after = y.step == kOn ? of_y : 0;
  shares.left = x.step == kBack ? of_x : 0;
  shares.right = x.step == kOn ? of_x : 0;
  shares.here = (z.step == kStay ? of_z : 0) + (y.step == kStay ? of_y : 0) + (x.step == kStay ? of_x : 0);
  return shares;
}

// What a step reads, asked for one step before.
struct CrossLoads {
  float below = kInfinity, before = kInfinity, left = kInfinity, right = kInfinity, after = kInfinity;
  float gradient = 0, added = 0;
};

__global__ void __launch_bounds__(32 * kFlowRows, 2)
    flow_through_cross(float* grad_in, const float* grad_out, const float* values, Grid3 grid, int chunk, bool add) {
  __shared__ float befores[2][kFlowRows + 2][32], afters[2][kFlowRows + 2][32];
  const Place at = place_of<kCrossRim>(grid, chunk);
  if (at.row < 2) {  // beyond the region
    for (const int row : {0, kFlowRows + 1}) {
      befores[at.row][row][at.lane] = 0;
      afters[at.row][row][at.lane] = 0;
    }
  }
  values += at.base;
  grad_in += at.base;
  grad_out += at.base;
  const int slice = static_cast<int>(grid.slice), load_end = ::min(at.z1 + 1, grid.z);
  const bool has_left = at.x > 0, has_right = at.x + 1 < grid.x, has_before = at.y > 0, has_after = at.y + 1 < grid.y;
  const auto load = [&](int z, int voxel) {
    CrossLoads loads;
    if (!at.inside || !within(z, 0, load_end)) return loads;
    const float* middle = values + voxel;
    if (z + 1 < grid.z) loads.below = middle[slice];
    if (has_before) loads.before = middle[-grid.x];
    if (has_left) loads.left = middle[-1];
    if (has_right) loads.right = middle[1];
    if (has_after) loads.after = middle[grid.x];
    loads.gradient = grad_out[voxel];
    if (add && at.owner && within(z, at.z0, at.z1)) loads.added = grad_in[voxel];
    return loads;
  };
  int voxel = at.first + (at.z0 - 1) * slice;  // of slice t
  float above = at.inside && at.z0 >= 2 ? values[voxel - slice] : kInfinity;
  float here = at.inside && at.z0 >= 1 ? values[voxel] : kInfinity, from_above = 0, sum = 0;
  CrossLoads next = load(at.z0 - 1, voxel);
  if (at.z0 == 0 && at.inside) next.below = values[at.first];  // the slice before the first has nothing but this
  for (int t = at.z0 - 1; t <= at.z1; ++t, voxel += slice) {
    const CrossLoads now = next;
    next = load(t + 1, voxel + slice);
    const Shares shares = divide(now.gradient, {above, now.before, now.left, here, now.right, now.after, now.below});
    const int buffer = t & 1;
    befores[buffer][at.row + 1][at.lane] = shares.before;
    afters[buffer][at.row + 1][at.lane] = shares.after;
    const float from_right = __shfl_down_sync(~0u, shares.left, 1), from_left = __shfl_up_sync(~0u, shares.right, 1);
    __syncthreads();
    if (at.owner && t > at.z0) grad_in[voxel - slice] = sum + shares.above;
    sum = now.added;
    sum += from_above;
    sum += afters[buffer][at.row][at.lane];
    sum += from_right;
    sum += shares.here;
    sum += from_left;
    sum += befores[buffer][at.row + 2][at.lane];
    from_above = shares.below;
    above = here, here = now.below;
  }
}

// Through 3x3x3 voxels to the first that has the least value, which is sought along x, then y, then z, and found again
// along z, then y, then x. Per step t, three slices are in the making: t is read, the least values of t - 1 are known,
// and what reaches t - 3 is complete. Whatever a step reads was asked for one step before.
__global__ void __launch_bounds__(32 * kFlowRows, 2)
    flow_through_cube(float* grad_in, const float* grad_out, const float* values, Grid3 grid, int chunk, bool add) {
  __shared__ float lines[2][kFlowRows + 2][32], befores[2][kFlowRows + 2][32], afters[2][kFlowRows + 2][32];
  const Place at = place_of<kCubeRim>(grid, chunk);
  if (at.row < 2) {  // beyond the region
    for (const int row : {0, kFlowRows + 1}) {
      lines[at.row][row][at.lane] = Least::kWorst;
      befores[at.row][row][at.lane] = 0;
      afters[at.row][row][at.lane] = 0;
    }
  }
  values += at.base;
  grad_in += at.base;
  grad_out += at.base;
  const int slice = static_cast<int>(grid.slice), flow_begin = ::max(at.z0 - 1, 0), flow_end = ::min(at.z1 + 1, grid.z);
  int voxel = at.first + (at.z0 - 2) * slice;  // of slice t
  float next_value = at.inside && at.z0 >= 2 ? values[voxel] : Least::kWorst, next_sum = 0, next_gradient = 0;
  float extreme_2 = Least::kWorst, extreme_1 = Least::kWorst;  // of planes t - 2, t - 1
  float gradient_3 = 0, gradient_2 = 0;                        // of slices t - 3, t - 2
  unsigned steps_x = 0, steps_y = 0, steps_z = 0;              // to extremes, the latest slice in the lowest bits
  float before = 0, middle = 0, after = 0;                     // what reaches the lines of slice t - 3
  for (int t = at.z0 - 2; t < at.z1 + 3; ++t, voxel += slice) {
    const int buffer = t & 1;
    const float value = next_value, sum = next_sum;
    const float loaded = next_gradient;
    next_value = at.inside && within(t + 1, 0, grid.z) ? values[voxel + slice] : Least::kWorst;
    if (at.inside && within(t, flow_begin, flow_end)) next_gradient = grad_out[voxel];
    if (add && at.owner && within(t - 2, at.z0, at.z1)) next_sum = grad_in[voxel - 2 * slice];
    const Choice along_x = first_of<Least>(__shfl_up_sync(~0u, value, 1), value, __shfl_down_sync(~0u, value, 1));
    lines[buffer][at.row + 1][at.lane] = along_x.value;
    befores[buffer][at.row + 1][at.lane] = before;
    afters[buffer][at.row + 1][at.lane] = after;
    __syncthreads();
    const float line = afters[buffer][at.row][at.lane] + middle + befores[buffer][at.row + 2][at.lane];
    const unsigned x_3 = steps_x >> 2 * kStepBits & kStepMask;  // of slice t - 3
    const float from_left = __shfl_up_sync(~0u, x_3 == kOn ? line : 0, 1);
    const float from_right = __shfl_down_sync(~0u, x_3 == kBack ? line : 0, 1);
    if (at.owner && t - 3 >= at.z0)
      grad_in[voxel - 3 * slice] = sum + (from_left + (x_3 == kStay ? line : 0) + from_right);
    const Choice along_y =
        first_of<Least>(lines[buffer][at.row][at.lane], along_x.value, lines[buffer][at.row + 2][at.lane]);
    const Choice along_z = first_of<Least>(extreme_2, extreme_1, along_y.value);
    const float gradient = at.inside && within(t - 1, flow_begin, flow_end) ? loaded : 0;
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

}  // namespace

int64_t most_volumes_cuda(const Extent3& extent) {
  return 65535 / std::max<int64_t>(1, (extent.z + 3) / 4);
}

void soft_erode_cuda(float* out, const float* in, const VolumeBatch& batch, SoftErosion erosion, Stream stream) {
  if (batch.volumes == 0 || batch.extent.voxels() == 0) return;
  const Grid3 grid = grid_of(batch);
  with_width(grid, [&](auto width) {
    constexpr int V = decltype(width)::value;
    const ColumnLaunch launch = column_launch<V>(grid, batch.volumes);
    const auto kernel = erosion == SoftErosion::kCross ? erode_by_cross<V> : erode_by_cube<V>;
    kernel<<<launch.blocks, kColumnThreads, 0, stream>>>(out, in, grid, launch.chunk);
  });
  check_launch("soft erosion");
}

void soft_erode_twice_cuda(float* out, const float* in, const VolumeBatch& batch, Stream stream) {
  if (batch.volumes == 0 || batch.extent.voxels() == 0) return;
  const Grid3 grid = grid_of(batch);
  with_width(grid, [&](auto width) {
    constexpr int V = decltype(width)::value;
    const ColumnLaunch launch = column_launch<V>(grid, batch.volumes);
    erode_twice<V><<<launch.blocks, kColumnThreads, 0, stream>>>(out, in, grid, launch.chunk);
  });
  check_launch("soft erosion");
}

void soft_erode_backward_cuda(float* grad_in, const float* grad_out, const float* in, const VolumeBatch& batch,
                              SoftErosion erosion, Gradient gradient, Stream stream) {
  if (batch.volumes == 0 || batch.extent.voxels() == 0) return;
  const Grid3 grid = grid_of(batch);
  const bool add = gradient == Gradient::kAdd;
  if (erosion == SoftErosion::kCross) {
    const FlowLaunch launch = flow_launch(grid, batch.volumes, kCrossRim);
    flow_through_cross<<<launch.blocks, launch.threads, 0, stream>>>(grad_in, grad_out, in, grid, launch.chunk, add);
  } else {
    const FlowLaunch launch = flow_launch(grid, batch.volumes, kCubeRim);
    flow_through_cube<<<launch.blocks, launch.threads, 0, stream>>>(grad_in, grad_out, in, grid, launch.chunk, add);
  }
  check_launch("gradient of soft erosion");
}

}  // namespace vox
