#include "kernels/columns_cuda.h"

#include <algorithm>
#include <limits>

#include "kernels/channels_cuda.cuh"

namespace vox::cuda {
namespace {

constexpr int kWide = 8;  // channels of a thread, 16 bytes in half precision

// Division by a number that a kernel learns at its start, of numbers below 2^31: a multiplication and a shift (Granlund
// and Montgomery 1994).
struct Divisor {
  uint32_t number = 1, factor = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(int64_t n) : number(static_cast<uint32_t>(n)) {
    while (shift < 31 && (uint64_t{1} << shift) < number) ++shift;
    factor = static_cast<uint32_t>(((((uint64_t{1} << shift) - number) << 32) / number) + 1);
  }
  __device__ __forceinline__ unsigned quotient(unsigned n) const { return (__umulhi(n, factor) + n) >> shift; }
  // Leaves the quotient in `n`.
  __device__ __forceinline__ int remainder(unsigned& n) const {
    const unsigned before = n;
    n = quotient(n);
    return static_cast<int>(before - n * number);
  }
};

struct Axis {
  int size, windows, kernel, stride, padding;
  Divisor by_size, by_windows, by_kernel, by_stride;
};

struct Grid {
  Axis z, y, x;
  int channels, pitch;
  Divisor by_row;     // groups of 8 elements of a row
  Divisor by_groups;  // groups of 8 channels
  Divisor by_channels;
};

Axis axis_of(int64_t size, int64_t windows, const Windows& w, int a) {
  return {static_cast<int>(size), static_cast<int>(windows), w.kernel[a],          w.stride[a],         w.padding[a],
          Divisor(size),          Divisor(windows),          Divisor(w.kernel[a]), Divisor(w.stride[a])};
}

Grid grid_of(const Windows& w) {
  return {axis_of(w.volume.z, w.z, w, 0),
          axis_of(w.volume.y, w.y, w, 1),
          axis_of(w.volume.x, w.x, w, 2),
          static_cast<int>(w.volume.c),
          static_cast<int>(w.pitch),
          Divisor(w.pitch / kWide),
          Divisor(std::max<int64_t>(1, w.volume.c / kWide)),
          Divisor(w.volume.c)};
}

// Where the window of a row begins in the volume.
struct Corner {
  int sample, z, y, x;
};

__device__ __forceinline__ Corner corner_of(const Grid& grid, unsigned row) {
  Corner corner;
  corner.x = grid.x.by_windows.remainder(row) * grid.x.stride - grid.x.padding;
  corner.y = grid.y.by_windows.remainder(row) * grid.y.stride - grid.y.padding;
  corner.z = grid.z.by_windows.remainder(row) * grid.z.stride - grid.z.padding;
  corner.sample = static_cast<int>(row);
  return corner;
}

// The offset in the volume of a tap and channel, negative: outside of it.
__device__ __forceinline__ int64_t offset_of(const Grid& grid, const Corner& corner, int tap, int channel) {
  unsigned rest = static_cast<unsigned>(tap);
  const int x = corner.x + grid.x.by_kernel.remainder(rest), y = corner.y + grid.y.by_kernel.remainder(rest);
  const int z = corner.z + static_cast<int>(rest);
  const bool inside = static_cast<unsigned>(x) < static_cast<unsigned>(grid.x.size) &&
                      static_cast<unsigned>(y) < static_cast<unsigned>(grid.y.size) &&
                      static_cast<unsigned>(z) < static_cast<unsigned>(grid.z.size);
  if (!inside) return -1;
  const int64_t voxel = ((int64_t{corner.sample} * grid.z.size + z) * grid.y.size + y) * grid.x.size + x;
  return voxel * grid.channels + channel;
}

struct Waiting {
  const float *scale, *shift;  // null: for nothing
  float slope;
};

__device__ __forceinline__ float applied(float value, float scale, float shift, float slope) {
  const float z = fmaf(value, scale, shift);
  return z > 0 ? z : z * slope;
}

// Eight neighbouring elements of a row are eight channels of one tap.
template <class T>
__global__ void __launch_bounds__(kWalkThreads)
    gather_channels_kernel(const T* volume, Waiting waiting, Grid grid, T* columns, unsigned count) {
  const unsigned i = blockIdx.x * kWalkThreads + threadIdx.x;
  if (i >= count) return;
  unsigned row = i;
  unsigned tap = static_cast<unsigned>(grid.by_row.remainder(row));
  const int channel = grid.by_groups.remainder(tap) * kWide;
  const Corner corner = corner_of(grid, row);
  const int64_t from = offset_of(grid, corner, static_cast<int>(tap), channel);
  uint4 raw = from < 0 ? uint4{} : load<T, kWide>(volume + from);
  if (waiting.scale && from >= 0) {
    const int64_t own = int64_t{corner.sample} * grid.channels + channel;
    float values[kWide], scale[kWide], shift[kWide];
    load_coefficients<kWide>(waiting.scale + own, 1, scale);
    load_coefficients<kWide>(waiting.shift + own, 0, shift);
    unpack<T, kWide>(raw, values);
#pragma unroll
    for (int k = 0; k < kWide; ++k) values[k] = applied(values[k], scale[k], shift[k], waiting.slope);
    raw = pack<T, kWide>(values);
  }
  store<T, kWide>(columns + int64_t{i} * kWide, raw);
}

template <class From, class To>
__global__ void __launch_bounds__(kWalkThreads)
    gather_elements_kernel(const From* volume, Waiting waiting, Grid grid, To* columns, unsigned count) {
  const unsigned i = blockIdx.x * kWalkThreads + threadIdx.x;
  if (i >= count) return;
  unsigned row = i;
  unsigned first = static_cast<unsigned>(grid.by_row.remainder(row)) * kWide;
  const Corner corner = corner_of(grid, row);
  const int taps = grid.z.kernel * grid.y.kernel * grid.x.kernel;
  int channel = grid.by_channels.remainder(first), tap = static_cast<int>(first);
  float values[kWide];
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const int64_t from = tap < taps ? offset_of(grid, corner, tap, channel) : -1;
    values[k] = from < 0 ? 0 : to_float(volume[from]);
    const int64_t own = int64_t{corner.sample} * grid.channels + channel;
    if (waiting.scale && from >= 0)
      values[k] = applied(values[k], waiting.scale[own], waiting.shift[own], waiting.slope);
    if (++channel == grid.channels) channel = 0, ++tap;
  }
  store<To, kWide>(columns + int64_t{i} * kWide, pack<To, kWide>(values));
}

template <class T, int W>
__device__ __forceinline__ void load_values(const T* from, float (&values)[W]) {
  if constexpr (W == 1) {
    values[0] = to_float(from[0]);
  } else if constexpr (sizeof(T) == 4) {
    load_coefficients<W>(from, 0, values);
  } else {
    unpack<T, W>(load<T, W>(from), values);
  }
}

template <class T, int W>
__device__ __forceinline__ void store_values(T* to, const float (&values)[W]) {
  if constexpr (W > 1 && sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < W; i += 4)
      *reinterpret_cast<float4*>(to + i) = {values[i], values[i + 1], values[i + 2], values[i + 3]};
  } else {
    store<T, W>(to, pack<T, W>(values));
  }
}

// Calls f(tap index along the axis, window) for the windows that have a place.
template <class F>
__device__ __forceinline__ void each_window(const Axis& axis, int place, F&& f) {
  const int reach = place + axis.padding;
  unsigned window = static_cast<unsigned>(reach);
  for (int tap = axis.by_stride.remainder(window); tap < axis.kernel && tap <= reach; tap += axis.stride, --window) {
    if (static_cast<int>(window) < axis.windows) f(tap, static_cast<int>(window));
  }
}

template <class C, int W>
__device__ __forceinline__ void add(const C* columns, int64_t at, float (&sums)[W]) {
  float values[W];
  load_values<C, W>(columns + at, values);
#pragma unroll
  for (int k = 0; k < W; ++k) sums[k] += values[k];
}

template <class C, class T, int W>
__global__ void __launch_bounds__(kWalkThreads)
    sum_kernel(const C* columns, const C* more, const float* bias, Grid grid, T* volume, unsigned count) {
  unsigned i = blockIdx.x * kWalkThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t to = int64_t{i} * W;
  const int channel = (W == 1 ? grid.by_channels : grid.by_groups).remainder(i) * W;
  const int x = grid.x.by_size.remainder(i), y = grid.y.by_size.remainder(i), z = grid.z.by_size.remainder(i);
  const int64_t sample = i;
  float sums[W];
  load_coefficients<W>(bias ? bias + channel : nullptr, 0, sums);
  each_window(grid.z, z, [&](int tap_z, int window_z) {
    each_window(grid.y, y, [&](int tap_y, int window_y) {
      const int64_t rows = ((sample * grid.z.windows + window_z) * grid.y.windows + window_y) * grid.x.windows;
      const int taps = (tap_z * grid.y.kernel + tap_y) * grid.x.kernel;
      each_window(grid.x, x, [&](int tap_x, int window_x) {
        const int64_t at = (rows + window_x) * grid.pitch + int64_t{taps + tap_x} * grid.channels + channel;
        add<C, W>(columns, at, sums);
        if (more) add<C, W>(more, at, sums);
      });
    });
  });
  store_values<T, W>(volume + to, sums);
}

unsigned blocks_for(int64_t count) {
  return static_cast<unsigned>((count + kWalkThreads - 1) / kWalkThreads);
}

template <class C, class T, int W>
void sum(const Windows& w, const ColumnSum& s, void* volume, Stream stream) {
  const int64_t count = w.volume.count() / W;
  sum_kernel<C, T, W><<<blocks_for(count), kWalkThreads, 0, stream>>>(
      static_cast<const C*>(s.columns), static_cast<const C*>(s.more), s.bias, grid_of(w), static_cast<T*>(volume),
      static_cast<unsigned>(count));
}

}  // namespace

bool columns_available(const Windows& w) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - kWalkThreads;
  return w.rows() > 0 && w.pitch % kWide == 0 && w.pitch >= w.width() && w.rows() * (w.pitch / kWide) <= kMost &&
         w.volume.count() <= kMost;
}

void gather_columns(const Windows& w, const Gathered& from, void* columns, Scalar to, Stream stream) {
  VOX_ASSERT(columns_available(w) && to != Scalar::kFloat32 && (from.scale == nullptr) == (from.shift == nullptr));
  const int64_t count = w.rows() * (w.pitch / kWide);
  const bool whole = w.volume.c % kWide == 0 && w.pitch == w.width() && from.type == to && aligned(from.volume) &&
                     aligned(from.scale) && aligned(from.shift);
  const Waiting waiting{from.scale, from.shift, from.slope};
  dispatch(to, [&]<class To>(To) {
    if constexpr (sizeof(To) == 2) {
      if (whole) {
        gather_channels_kernel<To>
            <<<blocks_for(count), kWalkThreads, 0, stream>>>(static_cast<const To*>(from.volume), waiting, grid_of(w),
                                                             static_cast<To*>(columns), static_cast<unsigned>(count));
        return;
      }
      dispatch(from.type, [&]<class From>(From) {
        gather_elements_kernel<From, To>
            <<<blocks_for(count), kWalkThreads, 0, stream>>>(static_cast<const From*>(from.volume), waiting, grid_of(w),
                                                             static_cast<To*>(columns), static_cast<unsigned>(count));
      });
    }
  });
  check_launch("columns of a convolution");
}

void sum_columns(const Windows& w, const ColumnSum& s, void* volume, Scalar to, Stream stream) {
  VOX_ASSERT(columns_available(w));
  const bool wide = w.volume.c % kWide == 0 && aligned(volume) && aligned(s.columns) && (!s.more || aligned(s.more)) &&
                    (!s.bias || aligned(s.bias));
  dispatch(s.type, [&]<class C>(C) {
    dispatch(to,
             [&]<class T>(T) { wide ? sum<C, T, kWide>(w, s, volume, stream) : sum<C, T, 1>(w, s, volume, stream); });
  });
  check_launch("sums of a convolution's columns");
}

}  // namespace vox::cuda
