#include "kernels/skeleton_level_cuda.h"

#include "kernels/soft_morphology.cuh"

namespace vox {

using namespace cuda;

namespace {

// Where the largest of three is along an axis, two bits: both 0 where it stays. Of equal ones the first.
constexpr unsigned kGoesBack = 1, kGoesOn = 2, kMoves = 3;
constexpr int kAlongX = 0, kAlongY = 2, kAlongZ = 4;  // places of these bits
constexpr float kLeastNormal = std::numeric_limits<float>::min();
constexpr unsigned kDirections = 63, kHalfOfThem = 32, kNoNumber = 0x7fc00000;

template <int kAxis>
__device__ __forceinline__ float largest_along(float a, float b, float c, unsigned& directions) {
  const bool second = b > a;
  const float best = second ? b : a;
  const bool third = c > best;
  directions |= (third ? kGoesOn : second ? 0u : kGoesBack) << kAxis;
  return third ? c : best;
}
// The nearest number that ends in these bits, so that it may be taken for the gradient as it is.
__device__ __forceinline__ float with_directions(float gradient, unsigned directions) {
  if (fabsf(gradient) < kLeastNormal) return __uint_as_float(directions);
  if (!(fabsf(gradient) < kInfinity)) return __uint_as_float(kNoNumber | directions);
  return __uint_as_float(((__float_as_uint(gradient) - directions + kHalfOfThem) & ~kDirections) | directions);
}
template <int kAxis, unsigned kWhere>
__device__ __forceinline__ float if_goes(float value, float directed) {
  return (__float_as_uint(directed) & kWhere << kAxis) != 0 ? value : 0.0f;
}
template <int kAxis>
__device__ __forceinline__ float if_stays(float value, float directed) {
  return (__float_as_uint(directed) & kMoves << kAxis) == 0 ? value : 0.0f;
}

template <int V>
struct DirectedPlane {
  Pack<V> largest;         // of 3x3 voxels
  unsigned directions[V];  // along x and y
};
template <int V>
__device__ __forceinline__ DirectedPlane<V> directed_plane(const float* here, const Column& column, const Grid3& grid) {
  const Pack<V> none = Pack<V>::filled(-kInfinity);
  const WideRow<V> row = widened<V>(Pack<V>::load(here), column, -kInfinity);
  const Pack<V> before = extreme_in_row<Largest>(row_beside<V>(here, column, grid, -1, none), column);
  const Pack<V> after = extreme_in_row<Largest>(row_beside<V>(here, column, grid, 1, none), column);
  DirectedPlane<V> plane;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    unsigned directions = 0;
    const float middle = largest_along<kAlongX>(row.at[i], row.at[i + 1], row.at[i + 2], directions);
    plane.largest.at[i] = largest_along<kAlongY>(before.at[i], middle, after.at[i], directions);
    plane.directions[i] = directions;
  }
  return plane;
}
template <int V>
__device__ __forceinline__ DirectedPlane<V> no_directed_plane() {
  DirectedPlane<V> plane;
  plane.largest = Pack<V>::filled(-kInfinity);
#pragma unroll
  for (unsigned& directions : plane.directions) directions = 0;
  return plane;
}

// The share of the skeleton's gradient that what a level adds has.
template <SoftErosion kErosion>
__device__ __forceinline__ float share_of(float state, float delta, float level) {
  if (!(delta > 0)) return 0;
  if constexpr (kErosion == SoftErosion::kCube) return state == level ? 1.0f : 0.0f;
  const float left = 1 - delta;
  if (state > 0) return __fdividef(state, left);
  return left <= 0 ? -state : 0.0f;  // else this level was cut off by the one that filled the voxel
}

template <int V, SoftErosion kErosion>
__global__ void __launch_bounds__(kColumnThreads) direct_gradients(LevelGradient gradient, Grid3 grid, int chunk) {
  const Column column = column_of<V>(grid, chunk);
  const OuterGradient& outer = gradient.outer;
  const int volume = static_cast<int>(blockIdx.z);
  const float scale = outer.factors != nullptr ? outer.factors[2 * volume] : 1.0f;
  const float shift = outer.factors != nullptr ? outer.factors[2 * volume + 1] : 0.0f;
  const int64_t to_valid = ((outer.first_volume + volume) / outer.channels - volume) * grid.voxels;
  const auto plane = [&](int64_t at) { return directed_plane<V>(gradient.next + at, column, grid); };
  int64_t voxel = column.first + column.z0 * grid.slice;
  Pack<V> above = column.z0 > 0 ? plane(voxel - grid.slice).largest : Pack<V>::filled(-kInfinity);
  DirectedPlane<V> level = plane(voxel);
  for (int z = column.z0; z < column.z1; ++z, voxel += grid.slice) {
    const Pack<V> value = Pack<V>::load(gradient.current + voxel), state = Pack<V>::load(gradient.state + voxel);
    Pack<V> outside = Pack<V>::load(outer.map + voxel), valid = Pack<V>::filled(1);
    if (outer.valid != nullptr) valid = Pack<V>::load(outer.valid + to_valid + voxel);
    const DirectedPlane<V> below = z + 1 < grid.z ? plane(voxel + grid.slice) : no_directed_plane<V>();
    Pack<V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      unsigned directions = level.directions[i];
      const float opened = largest_along<kAlongZ>(above.at[i], level.largest.at[i], below.largest.at[i], directions);
      const float share = share_of<kErosion>(state.at[i], value.at[i] - opened, static_cast<float>(gradient.level));
      const float sum = (outside.at[i] * scale + shift) * valid.at[i];
      result.at[i] = with_directions(share == 0 ? 0.0f : sum * share, directions);
    }
    if (column.owner) result.store(gradient.grad + voxel);
    above = level.largest;
    level = below;
  }
}

// What the cross finds: along each axis that has the least value 1 for the voxel before, 2 for the one after, 3 for the
// voxel itself; 0 along the others. Above these six bits, how often gradients are halved: axes that have it share it.
constexpr int kOfZ = 0, kOfY = 2, kOfX = 4, kHalvings = 6;
constexpr unsigned kFromNext = 1, kFromLast = 2, kFromSelf = 3, kFound = 3;

struct Cross {
  float above, before, left, here, right, after, below;
};
__device__ __forceinline__ unsigned least_of_cross(const Cross& v) {
  const Choice z = first_of<Least>(v.above, v.here, v.below), y = first_of<Least>(v.before, v.here, v.after),
               x = first_of<Least>(v.left, v.here, v.right);
  const float of_zy = fminf(z.value, y.value);
  const bool in_x = x.value <= of_zy, in_zy = !(x.value < of_zy);
  const bool in_z = in_zy && z.value <= y.value, in_y = in_zy && y.value <= z.value;
  const auto found = [](unsigned step) { return step == kBack ? kFromNext : step == kOn ? kFromLast : kFromSelf; };
  const unsigned axes = (in_x ? 1u : 0u) + (in_y ? 1u : 0u) + (in_z ? 1u : 0u);
  return (in_z ? found(z.step) << kOfZ : 0u) | (in_y ? found(y.step) << kOfY : 0u) |
         (in_x ? found(x.step) << kOfX : 0u) | (axes > 1 ? (axes - 1) << kHalvings : 0u);
}

template <int V>
__device__ __forceinline__ unsigned load_bytes(const uint8_t* from) {
  if constexpr (V == 4) return *reinterpret_cast<const unsigned*>(from);
  return *from;
}
template <int V>
__device__ __forceinline__ void store_bytes(uint8_t* to, unsigned bytes) {
  if constexpr (V == 4)
    *reinterpret_cast<unsigned*>(to) = bytes;
  else
    *to = static_cast<uint8_t>(bytes);
}

template <int V>
__device__ __forceinline__ unsigned least_of_crosses(const float* place, const Pack<V>& above, const Pack<V>& here,
                                                     const Pack<V>& below, const Column& column, const Grid3& grid) {
  const Pack<V> none = Pack<V>::filled(kInfinity);
  const WideRow<V> row = widened<V>(here, column, kInfinity);
  const Pack<V> before = row_beside<V>(place, column, grid, -1, none),
                after = row_beside<V>(place, column, grid, 1, none);
  unsigned bytes = 0;
#pragma unroll
  for (int i = 0; i < V; ++i)
    bytes |=
        least_of_cross({above.at[i], before.at[i], row.at[i], row.at[i + 1], row.at[i + 2], after.at[i], below.at[i]})
        << (8 * i);
  return bytes;
}

// Sums of what stays and of what neighbours in the row hand on.
template <int V>
__device__ __forceinline__ Pack<V> handed_on(const Pack<V>& back, const Pack<V>& stays, const Pack<V>& on,
                                             const Column& column) {
  const float left = from_left(on.at[V - 1], column, 0), right = from_right(back.at[0], column, 0);
  Pack<V> result;
#pragma unroll
  for (int i = 0; i < V; ++i)
    result.at[i] =
        (i > 0 ? on.at[i > 0 ? i - 1 : 0] : left) + stays.at[i] + (i + 1 < V ? back.at[i + 1 < V ? i + 1 : i] : right);
  return result;
}

// Three rows of directed gradients.
template <int V>
struct Rows {
  Pack<V> of[3];
};
template <int V>
__device__ __forceinline__ Rows<V> rows_at(const float* here, const Column& column, const Grid3& grid) {
  const Pack<V> none = Pack<V>::filled(0);
  return {
      {row_beside<V>(here, column, grid, -1, none), Pack<V>::load(here), row_beside<V>(here, column, grid, 1, none)}};
}
template <int V>
__device__ __forceinline__ Rows<V> no_rows() {
  const Pack<V> none = Pack<V>::filled(0);
  return {{none, none, none}};
}

// What reaches V voxels of a slice: `reached` is what came to places of the three rows along z, from the slice before
// and the slice itself.
template <int V>
__device__ __forceinline__ Pack<V> gathered(const Rows<V>& reached, const Rows<V>& now, const Rows<V>& next,
                                            const Column& column) {
  Pack<V> back, stays, on;  // of what reaches each place along z and y
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const auto plane = [&](int row) {
      return reached.of[row].at[i] + if_goes<kAlongZ, kGoesBack>(next.of[row].at[i], next.of[row].at[i]);
    };
    const float line = if_goes<kAlongY, kGoesOn>(plane(0), now.of[0].at[i]) +
                       if_stays<kAlongY>(plane(1), now.of[1].at[i]) +
                       if_goes<kAlongY, kGoesBack>(plane(2), now.of[2].at[i]);
    back.at[i] = if_goes<kAlongX, kGoesBack>(line, now.of[1].at[i]);
    stays.at[i] = if_stays<kAlongX>(line, now.of[1].at[i]);
    on.at[i] = if_goes<kAlongX, kGoesOn>(line, now.of[1].at[i]);
  }
  return handed_on<V>(back, stays, on, column);
}

// Takes what openings had from the gradient of the next map, and notes in its place what the cross finds.
template <int V, SoftErosion kErosion>
__global__ void __launch_bounds__(kColumnThreads, 6) take_openings(LevelGradient gradient, Grid3 grid, int chunk) {
  constexpr bool kCross = kErosion == SoftErosion::kCross;
  const Column column = column_of<V>(grid, chunk);
  uint8_t* const found = reinterpret_cast<uint8_t*>(gradient.next);
  const Pack<V> nothing = Pack<V>::filled(kInfinity);
  int64_t voxel = column.first + column.z0 * grid.slice;
  Rows<V> reached = no_rows<V>(), now = rows_at<V>(gradient.grad + voxel, column, grid);
  Pack<V> above = nothing, here = nothing;
  const auto along_z = [&](const Rows<V>& before, const Rows<V>& after) {
#pragma unroll
    for (int row = 0; row < 3; ++row)
#pragma unroll
      for (int c = 0; c < V; ++c)
        reached.of[row].at[c] = if_goes<kAlongZ, kGoesOn>(before.of[row].at[c], before.of[row].at[c]) +
                                if_stays<kAlongZ>(after.of[row].at[c], after.of[row].at[c]);
  };
  along_z(column.z0 > 0 ? rows_at<V>(gradient.grad + voxel - grid.slice, column, grid) : no_rows<V>(), now);
  if constexpr (kCross) {
    if (column.z0 > 0) above = Pack<V>::load(gradient.current + voxel - grid.slice);
    here = Pack<V>::load(gradient.current + voxel);
  }
  for (int z = column.z0; z < column.z1; ++z, voxel += grid.slice) {
    const bool more = z + 1 < grid.z;
    const Rows<V> next = more ? rows_at<V>(gradient.grad + voxel + grid.slice, column, grid) : no_rows<V>();
    Pack<V> sum = gradient.last ? Pack<V>::filled(0) : Pack<V>::load(gradient.grad_next + voxel);
    const Pack<V> taken = gathered<V>(reached, now, next, column);
#pragma unroll
    for (int i = 0; i < V; ++i) sum.at[i] -= taken.at[i];
    if (column.owner) sum.store(gradient.grad_next + voxel);
    if constexpr (kCross) {
      const Pack<V> below = more ? Pack<V>::load(gradient.current + voxel + grid.slice) : nothing;
      const unsigned bytes = least_of_crosses<V>(gradient.current + voxel, above, here, below, column, grid);
      if (column.owner) store_bytes<V>(found + voxel, bytes);
      above = here, here = below;
    }
    along_z(now, next);
    now = next;
  }
}

// Gradients of a row of eroded values, as they go along x and along the other axes, and where to.
template <int V>
struct Eroded {
  Pack<V> along_x, along_zy;
  unsigned found;
};
__device__ __forceinline__ float halved(float gradient, unsigned times) {
  return gradient * __uint_as_float((127 - times) << 23);
}
__device__ __forceinline__ unsigned halvings(unsigned found) {
  return found >> kHalvings & 3;
}
__device__ __forceinline__ float along_x(float gradient, unsigned found) {
  return halved(gradient, halvings(found) != 0 ? 1 : 0);
}
template <int V>
__device__ __forceinline__ Eroded<V> eroded_row(const LevelGradient& gradient, int64_t voxel) {
  Eroded<V> row;
  const Pack<V> values = Pack<V>::load(gradient.grad_next + voxel);
  row.found = load_bytes<V>(reinterpret_cast<const uint8_t*>(gradient.next) + voxel);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const unsigned found = row.found >> (8 * i);
    row.along_zy.at[i] = halved(values.at[i], halvings(found));
    row.along_x.at[i] = along_x(values.at[i], found);
  }
  return row;
}
template <int V>
__device__ __forceinline__ Eroded<V> nothing_eroded() {
  return {Pack<V>::filled(0), Pack<V>::filled(0), 0};
}
template <int kAxis, unsigned kWhere>
__device__ __forceinline__ float if_from(float value, unsigned found) {
  return (found >> kAxis & kFound) == kWhere ? value : 0.0f;
}

// Adds what comes through the erosion by the cross to the gradient that a level has from itself.
template <int V>
__global__ void __launch_bounds__(kColumnThreads) gather_through_cross(LevelGradient gradient, Grid3 grid, int chunk) {
  const Column column = column_of<V>(grid, chunk);
  int64_t voxel = column.first + column.z0 * grid.slice;
  const auto row_at = [&](int64_t at, bool exists) {
    return exists ? eroded_row<V>(gradient, at) : nothing_eroded<V>();
  };
  Eroded<V> above = row_at(voxel - grid.slice, column.z0 > 0), here = row_at(voxel, true);
  for (int z = column.z0; z < column.z1; ++z, voxel += grid.slice) {
    const Eroded<V> below = row_at(voxel + grid.slice, z + 1 < grid.z);
    const Eroded<V> before = row_at(voxel - grid.x, column.y > 0),
                    after = row_at(voxel + grid.x, column.y + 1 < grid.y);
    Pack<V> back, stays, on;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const unsigned found = here.found >> (8 * i);
      back.at[i] = if_from<kOfX, kFromNext>(here.along_x.at[i], found);
      on.at[i] = if_from<kOfX, kFromLast>(here.along_x.at[i], found);
      stays.at[i] = if_from<kOfZ, kFromSelf>(here.along_zy.at[i], found) +
                    if_from<kOfY, kFromSelf>(here.along_zy.at[i], found) +
                    if_from<kOfX, kFromSelf>(here.along_x.at[i], found);
    }
    const Pack<V> in_row = handed_on<V>(back, stays, on, column);
    Pack<V> sum = Pack<V>::load(gradient.grad + voxel);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int bits = 8 * i;
      sum.at[i] += if_from<kOfZ, kFromLast>(above.along_zy.at[i], above.found >> bits) +
                   if_from<kOfY, kFromLast>(before.along_zy.at[i], before.found >> bits) + in_row.at[i] +
                   if_from<kOfY, kFromNext>(after.along_zy.at[i], after.found >> bits) +
                   if_from<kOfZ, kFromNext>(below.along_zy.at[i], below.found >> bits);
    }
    if (column.owner) sum.store(gradient.grad + voxel);
    above = here, here = below;
  }
}

template <int V, SoftErosion kErosion>
void launch_level(const LevelGradient& gradient, const VolumeBatch& batch, Stream stream) {
  const Grid3 grid = grid_of(batch);
  const auto launch = [&](auto kernel, int per_multiprocessor, const char* what) {
    const ColumnLaunch at = column_launch_in_one_go<V>(grid, batch.volumes, per_multiprocessor);
    kernel<<<at.blocks, kColumnThreads, 0, stream>>>(gradient, grid, at.chunk);
    check_launch(what);
  };
  launch(direct_gradients<V, kErosion>, 9, "gradient of a skeleton");
  launch(take_openings<V, kErosion>, 6, "gradient of openings");
  if constexpr (kErosion == SoftErosion::kCross)
    launch(gather_through_cross<V>, 7, "gradient of erosion");
  else
    soft_erode_backward_cuda(gradient.grad, gradient.grad_next, gradient.current, batch, kErosion, Gradient::kAdd,
                             stream);
}

}  // namespace

void skeleton_level_backward(const LevelGradient& gradient, const VolumeBatch& batch, SoftErosion erosion,
                             Stream stream) {
  with_width(grid_of(batch), [&](auto width) {
    constexpr int V = decltype(width)::value;
    if (erosion == SoftErosion::kCross)
      launch_level<V, SoftErosion::kCross>(gradient, batch, stream);
    else
      launch_level<V, SoftErosion::kCube>(gradient, batch, stream);
  });
}

}  // namespace vox
