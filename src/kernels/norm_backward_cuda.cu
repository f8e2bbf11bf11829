#include "kernels/norm_cuda.h"
#include "kernels/norm_parts.cuh"

namespace vox::cuda {
namespace {

constexpr int kHalves = 4;  // channels of a thread: with 8, coefficients and sums would leave too few registers
template <class T>
constexpr int kAhead = sizeof(T) == 4 ? 2 : 4;  // voxels of a thread in flight, two or three tensors each

template <class T>
struct Inputs {
  const T *dy, *x, *residual;
};

// The same values at `ahead` voxels, as they lie in memory.
template <class T, int W>
struct Loads {
  Raw<T, W> dy[kAhead<T>], x[kAhead<T>], residual[kAhead<T>];

  __device__ __forceinline__ void fill(const Inputs<T>& in, int64_t at, int64_t stride, int inside) {
#pragma unroll
    for (int u = 0; u < kAhead<T>; ++u) {
      if (u < inside) dy[u] = load<T, W>(in.dy + at + u * stride);
      if (u < inside) x[u] = load<T, W>(in.x + at + u * stride);
      if (u < inside && in.residual) residual[u] = load<T, W>(in.residual + at + u * stride);
    }
  }
};

// How many of the voxels v, v + lanes, ... that a thread loads at once lie below `end`.
template <class T>
__device__ __forceinline__ int voxels_inside(int v, int end, int lanes) {
  int inside = 0;
#pragma unroll
  for (int u = 0; u < kAhead<T>; ++u) inside += v + u * lanes < end;
  return inside;
}

template <class T, int W, ActForm form>
__global__ void __launch_bounds__(kWalkThreads, 3)
    grad_sums_kernel(Inputs<T> in, Walk walk, NormState state, Act act, float* partials) {
  constexpr int kTerms = form == ActForm::kSlopes ? 3 : 2;
  __shared__ float shared[kWalkThreads * kTerms * W];
  const Place place = place_of_thread<W>(walk);
  const int64_t own = place.sample * walk.channels + place.channel;
  float scale[W], shift[W], mean[W], sums[kTerms][W] = {};
  load_coefficients<W>(state.scale ? state.scale + own : nullptr, 1, scale);
  load_coefficients<W>(state.shift ? state.shift + own : nullptr, 0, shift);
  load_coefficients<W>(state.mean ? state.mean + own : nullptr, 0, mean);
  const Activation<form, W> activation(act, place.channel);
  const int64_t stride = int64_t{walk.lanes} * walk.channels;
  int64_t at = place.offset;
  for (int v = place.first; v < place.end; v += kAhead<T> * walk.lanes, at += kAhead<T> * stride) {
    const int inside = voxels_inside<T>(v, place.end, walk.lanes);
    Loads<T, W> loads;
    loads.fill(in, at, stride, inside);
#pragma unroll
    for (int u = 0; u < kAhead<T>; ++u) {
      if (u >= inside) break;
      float dy[W], x[W], residual[W] = {};
      unpack<T, W>(loads.dy[u], dy);
      unpack<T, W>(loads.x[u], x);
      if (in.residual) unpack<T, W>(loads.residual[u], residual);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const float z = fmaf(x[i], scale[i], shift[i]) + residual[i];
        const float dz = activation.gradient(dy[i], z, i);
        sums[0][i] += dz;
        sums[1][i] = fmaf(dz, x[i] - mean[i], sums[1][i]);
        if constexpr (kTerms == 3) sums[2][i] += z > 0 ? 0 : dy[i] * z;
      }
    }
  }
  float* const row = partials + (place.sample * gridDim.x + blockIdx.x) * kTerms * walk.channels;
  const float* const rstd = state.rstd ? state.rstd + place.sample * walk.channels : nullptr;
  sum_over_lanes<W, kTerms>(walk, sums, shared, [&](int channel, const float(&totals)[kTerms]) {
    row[channel] = totals[0];
    row[walk.channels + channel] = rstd ? totals[1] * rstd[channel] : totals[1];
    if constexpr (kTerms == 3) row[2 * walk.channels + channel] = totals[2];
  });
}

// dx = a * dz + b * x + c. The outputs may be dy: what a thread overwrites it has read, and nobody else does.
template <class T, int W, ActForm form>
__global__ void __launch_bounds__(kWalkThreads, 3) grad_apply_kernel(Inputs<T> in, Walk walk, NormState state, Act act,
                                                                     const float* coefficients, T* dx, T* dresidual) {
  const Place place = place_of_thread<W>(walk);
  const int64_t own = place.sample * walk.channels + place.channel, plane = int64_t{gridDim.z} * walk.channels;
  float scale[W], shift[W], a[W], b[W], c[W];
  load_coefficients<W>(state.scale ? state.scale + own : nullptr, 1, scale);
  load_coefficients<W>(state.shift ? state.shift + own : nullptr, 0, shift);
  load_coefficients<W>(coefficients ? coefficients + own : nullptr, 1, a);
  load_coefficients<W>(coefficients ? coefficients + plane + own : nullptr, 0, b);
  load_coefficients<W>(coefficients ? coefficients + 2 * plane + own : nullptr, 0, c);
  const Activation<form, W> activation(act, place.channel);
  const int64_t stride = int64_t{walk.lanes} * walk.channels;
  int64_t at = place.offset;
  for (int v = place.first; v < place.end; v += kAhead<T> * walk.lanes, at += kAhead<T> * stride) {
    const int inside = voxels_inside<T>(v, place.end, walk.lanes);
    Loads<T, W> loads;
    loads.fill(in, at, stride, inside);
#pragma unroll
    for (int u = 0; u < kAhead<T>; ++u) {
      if (u >= inside) break;
      float dz[W], x[W], residual[W] = {};
      unpack<T, W>(loads.dy[u], dz);
      unpack<T, W>(loads.x[u], x);
      if (in.residual) unpack<T, W>(loads.residual[u], residual);
#pragma unroll
      for (int i = 0; i < W; ++i) dz[i] = activation.gradient(dz[i], fmaf(x[i], scale[i], shift[i]) + residual[i], i);
      if (dresidual) store<T, W>(dresidual + at + u * stride, pack<T, W>(dz));
      if (!dx) continue;
#pragma unroll
      for (int i = 0; i < W; ++i) x[i] = fmaf(a[i], dz[i], fmaf(b[i], x[i], c[i]));
      store<T, W>(dx + at + u * stride, pack<T, W>(x));
    }
  }
}

template <class T>
Inputs<T> inputs_of(const NormGradInput& input) {
  const bool linear = input.act.kind == ActKind::kNone;  // nobody asks where z is
  return {static_cast<const T*>(input.dy), static_cast<const T*>(input.x),
          linear ? nullptr : static_cast<const T*>(input.residual)};
}

bool fits(const NormGradInput& input) {
  const NormState& state = input.state;
  return aligned(input.dy) && aligned(input.x) && aligned(input.residual) && aligned(state.scale) &&
         aligned(state.shift) && aligned(state.mean);
}

}  // namespace

int64_t norm_grad_rows(const Shape5& shape) {
  return rows_of_sums(shape);
}

void norm_grad_sums(const NormGradInput& input, float* partials, Stream stream) {
  const Shape5& shape = input.shape;
  if (shape.count() == 0) return;
  dispatch_width<kHalves>(input.type, shape, fits(input), [&](auto value, auto width) {
    dispatch_form(input.act.kind, [&](auto form) {
      using T = decltype(value);
      Walk walk = walk_over(shape, width);
      walk.chunk = chunk_of_sums(shape);
      grad_sums_kernel<T, width, form><<<grid_of(walk, shape, width), kWalkThreads, 0, stream>>>(
          inputs_of<T>(input), walk, input.state, input.act, partials);
    });
  });
  check_launch("norm_grad_sums");
}

void norm_grad_apply(const NormGradInput& input, const float* coefficients, void* dx, void* dresidual, Stream stream) {
  const Shape5& shape = input.shape;
  if (shape.count() == 0) return;
  const bool fit = fits(input) && aligned(coefficients) && aligned(dx) && aligned(dresidual);
  dispatch_width<kHalves>(input.type, shape, fit, [&](auto value, auto width) {
    dispatch_form(input.act.kind, [&](auto form) {
      using T = decltype(value);
      Walk walk = walk_over(shape, width);
      walk.chunk = chunk_of_map(walk, shape, kAhead<T>);
      grad_apply_kernel<T, width, form><<<grid_of(walk, shape, width), kWalkThreads, 0, stream>>>(
          inputs_of<T>(input), walk, input.state, input.act, coefficients, static_cast<T*>(dx),
          static_cast<T*>(dresidual));
    });
  });
  check_launch("norm_grad_apply");
}

}  // namespace vox::cuda
