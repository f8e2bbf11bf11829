#include "kernels/soft_morphology_cuda.h"

#include <algorithm>

#include "kernels/soft_morphology.cuh"

namespace vox {

using namespace cuda;

namespace {

template <int V>
__global__ void __launch_bounds__(kColumnThreads) erode_by_cross(float* out, const float* in, Grid3 grid, int chunk) {
  const Column column = column_of<V>(grid, chunk);
  if (!column.inside) return;
  const float* here = in + column.first + column.z0 * grid.slice;
  float* to = out + column.first + column.z0 * grid.slice;
  Pack<V> above = column.z0 > 0 ? Pack<V>::load(here - grid.slice) : Pack<V>::filled(kInfinity);
  Pack<V> level = Pack<V>::load(here);
  for (int z = column.z0; z < column.z1; ++z, here += grid.slice, to += grid.slice) {
    const Pack<V> below = z + 1 < grid.z ? Pack<V>::load(here + grid.slice) : Pack<V>::filled(kInfinity);
    Pack<V> result = extreme<Least>(extreme<Least>(above, level), below);
    if (column.y > 0) result = extreme<Least>(result, Pack<V>::load(here - grid.x));
    if (column.y + 1 < grid.y) result = extreme<Least>(result, Pack<V>::load(here + grid.x));
    const float left = column.x > 0 ? here[-1] : kInfinity, right = column.x + V < grid.x ? here[V] : kInfinity;
    for (int i = 0; i < V; ++i) {
      const float before = i > 0 ? level.at[i > 0 ? i - 1 : 0] : left;
      const float after = i + 1 < V ? level.at[i + 1 < V ? i + 1 : i] : right;
      result.at[i] = fminf(result.at[i], fminf(before, after));
    }
    result.store(to);
    above = level;
    level = below;
  }
}

template <int V>
__global__ void __launch_bounds__(kColumnThreads) erode_by_cube(float* out, const float* in, Grid3 grid, int chunk) {
  const Column column = column_of<V>(grid, chunk);
  if (!column.inside) return;
  const float* here = in + column.first + column.z0 * grid.slice;
  float* to = out + column.first + column.z0 * grid.slice;
  const auto plane = [&](const float* at) { return extreme_in_plane<Least, V>(at, column, grid); };
  Pack<V> above = column.z0 > 0 ? plane(here - grid.slice) : Pack<V>::filled(kInfinity), level = plane(here);
  for (int z = column.z0; z < column.z1; ++z, here += grid.slice, to += grid.slice) {
    const Pack<V> below = z + 1 < grid.z ? plane(here + grid.slice) : Pack<V>::filled(kInfinity);
    extreme<Least>(extreme<Least>(above, level), below).store(to);
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
  // Row y from two voxels before the first to two after the last, and the rows beside it from one to one.
  float row[V + 4], beside[V + 2];
  const Pack<V> middle = Pack<V>::load(here);
  for (int i = 0; i < V; ++i) row[i + 2] = middle.at[i];
  for (int i = 1; i <= 2; ++i) {
    row[2 - i] = column.x >= i ? here[-i] : kInfinity;
    row[V + 1 + i] = column.x + V + i <= grid.x ? here[V - 1 + i] : kInfinity;
  }
  for (int i = 0; i < V + 2; ++i) beside[i] = kInfinity;
  Pack<V> farthest = Pack<V>::filled(kInfinity);
  const auto take = [&](int step) {
    if (column.y + step < 0 || column.y + step >= grid.y) return;
    const float* there = here + step * grid.x;
    const Pack<V> pack = Pack<V>::load(there);
    for (int i = 0; i < V; ++i) beside[i + 1] = fminf(beside[i + 1], pack.at[i]);
    if (column.x > 0) beside[0] = fminf(beside[0], there[-1]);
    if (column.x + V < grid.x) beside[V + 1] = fminf(beside[V + 1], there[V]);
    const int twice = 2 * step;
    if (column.y + twice >= 0 && column.y + twice < grid.y)
      farthest = extreme<Least>(farthest, Pack<V>::load(here + twice * grid.x));
  };
  take(-1);
  take(1);
  Diamonds<V> result;
  for (int i = 0; i < V; ++i) {
    result.of[0].at[i] = row[i + 2];
    result.of[1].at[i] = fminf(fminf(row[i + 1], row[i + 2]), fminf(row[i + 3], beside[i + 1]));
    result.of[2].at[i] = fminf(fminf(fminf(result.of[1].at[i], farthest.at[i]), fminf(row[i], row[i + 4])),
                               fminf(beside[i], beside[i + 2]));
  }
  return result;
}

template <int V>
__global__ void __launch_bounds__(kColumnThreads) erode_twice(float* out, const float* in, Grid3 grid, int chunk) {
  const Column column = column_of<V>(grid, chunk);
  if (!column.inside) return;
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
    if (t - 2 >= column.z0) of_2.store(out + column.first + (t - 2) * grid.slice);
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

struct GivenGradient {
  const float* gradients;
  using Loaded = float;
  __device__ void go_to(const Place& at) { gradients += at.base; }
  __device__ Loaded load(int voxel) const { return gradients[voxel]; }
  __device__ float flow(Loaded loaded, float) const { return loaded; }
  __device__ void keep(int, float) const {}
};
struct IntoGradient {
  float* gradients;
  bool add;
  __device__ void go_to(const Place& at) { gradients += at.base; }
  __device__ float load(int voxel) const { return add ? gradients[voxel] : 0; }
  __device__ void take(int voxel, float before, float sum) const { gradients[voxel] = before + sum; }
};

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
    flow_through_cube<Least><<<launch.blocks, launch.threads, 0, stream>>>(
        GivenGradient{grad_out}, IntoGradient{grad_in, add}, in, grid, launch.chunk);
  }
  check_launch("gradient of soft erosion");
}

}  // namespace vox
