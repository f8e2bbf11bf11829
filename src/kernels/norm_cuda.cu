#include "kernels/norm_cuda.h"

#include "kernels/norm_parts.cuh"

namespace vox::cuda {
namespace {

constexpr int kAhead = 4;  // loads of a thread in flight

// Sums relative to a pivot, the chunk's first voxel: it is one of the values, so that the variance cannot be small
// beside its squared distance from the mean by more than the chunk's length.
template <class T, int W>
__global__ void __launch_bounds__(kWalkThreads) moments_kernel(const T* x, Walk walk, float* partials) {
  __shared__ float shared[kWalkThreads * 2 * W];
  const Place place = place_of_thread<W>(walk);
  const T* const chunk = x + (place.sample * walk.voxels + int64_t{blockIdx.x} * walk.chunk) * walk.channels;
  float pivot[W], sums[2][W] = {};
  unpack<T, W>(load<T, W>(chunk + place.channel), pivot);
  const int64_t stride = int64_t{walk.lanes} * walk.channels;
  const T* from = x + place.offset;
  for (int v = place.first; v < place.end; v += kAhead * walk.lanes, from += kAhead * stride) {
    Raw<T, W> raw[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (v + u * walk.lanes < place.end) raw[u] = load<T, W>(from + u * stride);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (v + u * walk.lanes >= place.end) break;
      float values[W];
      unpack<T, W>(raw[u], values);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const float distance = values[i] - pivot[i];
        sums[0][i] += distance;
        sums[1][i] = fmaf(distance, distance, sums[1][i]);
      }
    }
  }
  float* const row = partials + (place.sample * gridDim.x + blockIdx.x) * 3 * walk.channels;
  sum_over_lanes<W, 2>(walk, sums, shared, [&](int channel, const float(&totals)[2]) {
    const float count = static_cast<float>(place.end), offset = totals[0] / count;
    const float m2 = totals[1] - totals[0] * offset;
    row[channel] = count;
    row[walk.channels + channel] = to_float(chunk[channel]) + offset;
    row[2 * walk.channels + channel] = m2 < 0 ? 0 : m2;  // a NaN stays one
  });
}

template <class T, int W, ActForm form>
__global__ void __launch_bounds__(kWalkThreads)
    apply_kernel(const T* x, const T* residual, T* y, Walk walk, const float* scale, const float* shift, Act act) {
  const Place place = place_of_thread<W>(walk);
  const int64_t own = place.sample * walk.channels + place.channel;
  float scales[W], shifts[W];
  load_coefficients<W>(scale ? scale + own : nullptr, 1, scales);
  load_coefficients<W>(shift ? shift + own : nullptr, 0, shifts);
  const Activation<form, W> activation(act, place.channel);
  const int64_t stride = int64_t{walk.lanes} * walk.channels;
  int64_t at = place.offset;
  for (int v = place.first; v < place.end; v += kAhead * walk.lanes, at += kAhead * stride) {
    Raw<T, W> raw[kAhead], added[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const bool inside = v + u * walk.lanes < place.end;
      if (inside) raw[u] = load<T, W>(x + at + u * stride);
      if (inside && residual) added[u] = load<T, W>(residual + at + u * stride);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (v + u * walk.lanes >= place.end) break;
      float values[W], more[W] = {};
      unpack<T, W>(raw[u], values);
      if (residual) unpack<T, W>(added[u], more);
#pragma unroll
      for (int i = 0; i < W; ++i) values[i] = activation.value(fmaf(values[i], scales[i], shifts[i]) + more[i], i);
      store<T, W>(y + at + u * stride, pack<T, W>(values));
    }
  }
}

}  // namespace

int64_t moment_rows(const Shape5& shape) {
  return rows_of_sums(shape);
}

void moments(const void* x, Scalar type, const Shape5& shape, float* partials, Stream stream) {
  if (shape.count() == 0) return;
  dispatch_width<8>(type, shape, aligned(x), [&](auto value, auto width) {
    using T = decltype(value);
    Walk walk = walk_over(shape, width);
    walk.chunk = chunk_of_sums(shape);
    moments_kernel<T, width>
        <<<grid_of(walk, shape, width), kWalkThreads, 0, stream>>>(static_cast<const T*>(x), walk, partials);
  });
  check_launch("moments");
}

void apply_norm(const void* x, const void* residual, void* y, Scalar type, const Shape5& shape, const float* scale,
                const float* shift, const Act& act, Stream stream) {
  if (shape.count() == 0) return;
  const bool fit = aligned(x) && aligned(residual) && aligned(y) && aligned(scale) && aligned(shift);
  dispatch_width<8>(type, shape, fit, [&](auto value, auto width) {
    dispatch_form(act.kind, [&](auto form) {
      using T = decltype(value);
      Walk walk = walk_over(shape, width);
      walk.chunk = chunk_of_map(walk, shape, kAhead);
      apply_kernel<T, width, form><<<grid_of(walk, shape, width), kWalkThreads, 0, stream>>>(
          static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<T*>(y), walk, scale, shift, act);
    });
  });
  check_launch("apply_norm");
}

}  // namespace vox::cuda
