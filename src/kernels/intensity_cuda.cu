// Passes over a patch: a thread takes four neighbours along x at a time.
#include <algorithm>

#include "base/random.h"
#include "kernels/cuda_device.cuh"
#include "kernels/gather_point.h"
#include "kernels/intensity_cuda.h"

namespace vox::cuda {
namespace {

constexpr int kThreads = 256, kPerThread = 4;

struct Place {
  int of[3];
};

__device__ Place place_of(const PointPass& pass, int voxel) {
  const int row = voxel / pass.extent[2];
  return {{row / pass.extent[1], row % pass.extent[1], voxel % pass.extent[2]}};
}

__device__ int mirrored(int i, int size) {
  if (i >= 0 && i < size) return i;
  if (size == 1) return 0;
  const int period = 2 * (size - 1), folded = ((i % period) + period) % period;
  return folded < size ? folded : period - folded;
}

// Around from[voxel], which is number `at` of `size` along an axis whose neighbours lie `stride` apart.
__device__ float smoothed(const float* from, int voxel, int at, int size, int stride, const float* weights,
                          int radius) {
  float sum = weights[0] * from[voxel];
  if (at >= radius && at + radius < size) {
    for (int k = 1; k <= radius; ++k) sum += weights[k] * (from[voxel - k * stride] + from[voxel + k * stride]);
    return sum;
  }
  for (int k = 1; k <= radius; ++k) {
    const float before = from[voxel + (mirrored(at - k, size) - at) * stride];
    const float after = from[voxel + (mirrored(at + k, size) - at) * stride];
    sum += weights[k] * (before + after);
  }
  return sum;
}

__device__ float between(float a, float b, float fraction) {
  return a + fraction * (b - a);
}

__device__ float coarse_value(const PointPass& pass, const Place& place) {
  const CoarseTap z = pass.load.taps[0][place.of[0]], y = pass.load.taps[1][place.of[1]],
                  x = pass.load.taps[2][place.of[2]];
  const int slice = pass.extent[1] * pass.extent[2];
  const auto along_z = [&](int row, int column) {
    const float* from = pass.load.from + row * pass.extent[2] + column;
    return between(from[z.low * slice], from[z.high * slice], z.fraction);
  };
  const auto along_y = [&](int column) { return between(along_z(y.low, column), along_z(y.high, column), y.fraction); };
  return between(along_y(x.low), along_y(x.high), x.fraction);
}

template <LoadKind kKind>
__device__ float load_voxel(const PointPass& pass, int voxel) {
  const Load& load = pass.load;
  if constexpr (kKind == LoadKind::kPlain) return load.from[voxel];
  const Place place = place_of(pass, voxel);
  if constexpr (kKind == LoadKind::kLowResolution) return coarse_value(pass, place);
  const int stride = load.axis == 2 ? 1 : load.axis == 1 ? pass.extent[2] : pass.extent[1] * pass.extent[2];
  const float value =
      smoothed(load.from, voxel, place.of[load.axis], pass.extent[load.axis], stride, load.weights, load.radius);
  if constexpr (kKind == LoadKind::kBlur) return value;
  const float original = load.original[voxel];
  return original + load.strength * (original - value);
}

// base^exponent for bases in 0 .. 1, as power_cpu.
__device__ float power(float base, float exponent) {
  const float least = 1e-30f, positive = fmaxf(base, least);
  uint32_t bits = __float_as_uint(positive);
  const int doubled = static_cast<int>(bits - 0x3f3504f3u) >> 23;
  const float f = __uint_as_float(bits - (static_cast<uint32_t>(doubled) << 23)) - 1.0f;
  const float log_whole = static_cast<float>(doubled), log_rest = f * evaluate(NormalFit::log(), f);
  float whole = rintf(exponent * log_whole);
  float rest = fmaf(exponent, log_whole, -whole) * NormalFit::kLog2;
  rest = fmaf(exponent, log_rest, rest);
  const float more = rintf(rest * (1.0f / NormalFit::kLog2));
  rest = fmaf(-more, NormalFit::kLog2, rest);
  whole = fmaxf(whole + more, -120.0f);
  const Polynomial<8> taylor{{1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1.0f, 1.0f}};
  const int mantissa = __float_as_int(evaluate(taylor, rest));
  const float value = __int_as_float(mantissa + (static_cast<int>(whole) << 23));
  return base < least ? 0.0f : value;
}

struct Resolved {  // an operation's numbers once the moments are known
  float a, b, c;
  bool acts;
};

__device__ Resolved resolve(const PointPass& pass, const PointOp& op) {
  Resolved r{op.a, 0, 0, true};
  if (op.slot < 0) return r;
  const Moments& before = pass.memory->slots[op.slot];
  const float range = before.high - before.low;
  switch (op.kind) {
    case PointKind::kContrast:
      return {static_cast<float>(before.mean), before.low, before.high, true};
    case PointKind::kInvert:
      return {static_cast<float>(2 * before.mean), 0, 0, true};
    case PointKind::kGamma: {
      const float sign = op.flag ? -1.0f : 1.0f;
      return {op.flag ? before.high : before.low, sign / range, sign * range, range > 1e-7f};
    }
    case PointKind::kRestore: {
      const Moments& after = pass.memory->slots[op.after];
      const double factor = before.deviation / (after.deviation > 1e-7 ? after.deviation : 1e-7);
      return {static_cast<float>(factor), static_cast<float>(before.mean - after.mean * factor), 0, range > 1e-7f};
    }
    default:
      return {static_cast<float>(before.mean), 0, 0, true};
  }
}

__device__ bool inside(const TableBox& box, const Place& place) {
  for (int axis = 0; axis < 3; ++axis)
    if (place.of[axis] < box.begin[axis] || place.of[axis] >= box.end[axis]) return false;
  return true;
}

__device__ float normal_at(const PointOp& op, int64_t draw) {
  return normal_from_bits(Random(op.seed, op.sample, op.stream).bits_at(static_cast<uint32_t>(draw)));
}

__device__ float applied(const PointPass& pass, const PointOp& op, const Resolved& r, float value, int voxel) {
  switch (op.kind) {
    case PointKind::kMultiply:
      return value * op.a;
    case PointKind::kAdd:
      return value + op.a;
    case PointKind::kContrast: {
      const float spread = r.a + (value - r.a) * op.a;
      return op.flag ? fminf(fmaxf(spread, r.b), r.c) : spread;
    }
    case PointKind::kInvert:
      return r.a - value;
    case PointKind::kGamma:
      return r.acts ? fmaf(power(fminf(fmaxf((value - r.a) * r.b, 0.0f), 1.0f), op.a), r.c, r.a) : value;
    case PointKind::kRestore:
      return r.acts ? value * r.a + r.b : value;
    case PointKind::kNoise:
      return fmaf(op.a, normal_at(op, op.first + voxel), value);
    default:
      break;
  }
  const Place place = place_of(pass, voxel);
  if (op.kind == PointKind::kRamp) {
    const float first = static_cast<float>(op.start + op.along[0] * static_cast<double>(place.of[0]) +
                                           op.along[1] * static_cast<double>(place.of[1]));
    return value + (first + static_cast<float>(op.along[2]) * static_cast<float>(place.of[2]));
  }
  if (op.kind == PointKind::kLights) {
    const int slice = place.of[op.axis];
    return value * op.values[slice] + op.values[op.count + slice];
  }
  for (int i = 0; i < op.count; ++i) {
    if (!inside(op.boxes[i], place)) continue;
    if (op.kind == PointKind::kFill)
      value = op.flag ? r.a : op.values[i];
    else
      value = fmaf(op.a, normal_at(op, op.first + voxel), value);
  }
  return value;
}

// Four voxels from one number of the generator, where they begin with the first of its four.
__device__ void add_noise(const PointOp& op, int voxel, float (&values)[kPerThread]) {
  const int64_t draw = op.first + voxel;
  const Philox4 bits = philox(op.seed, op.sample, (uint64_t{op.stream} << 32) | (static_cast<uint32_t>(draw) >> 2));
  for (int k = 0; k < kPerThread; ++k) values[k] = fmaf(op.a, normal_from_bits(bits.v[k]), values[k]);
}

__device__ PartialMoments merged(const PartialMoments& a, const PartialMoments& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const double count = a.count + b.count, difference = b.mean - a.mean;
  return {count, a.mean + difference * (b.count / count),
          a.squares + b.squares + difference * difference * (a.count * b.count / count), fminf(a.low, b.low),
          fmaxf(a.high, b.high)};
}

// In the order of threads; the result is thread 0's.
__device__ PartialMoments merged_block(const PartialMoments& own) {
  __shared__ PartialMoments all[kThreads];
  all[threadIdx.x] = own;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) all[threadIdx.x] = merged(all[threadIdx.x], all[threadIdx.x + half]);
  }
  return all[0];
}

class Gathering {  // moments of what a thread sees, about the first value
 public:
  __device__ void add(float value) {
    if (count_ == 0) low_ = high_ = centre_ = value;
    low_ = fminf(low_, value);
    high_ = fmaxf(high_, value);
    const double from_centre = static_cast<double>(value) - static_cast<double>(centre_);
    sum_ += from_centre;
    squares_ += from_centre * from_centre;
    ++count_;
  }
  __device__ PartialMoments result() const {
    if (count_ == 0) return {};
    const double count = count_;
    return {count, static_cast<double>(centre_) + sum_ / count, squares_ - sum_ * sum_ / count, low_, high_};
  }

 private:
  int count_ = 0;
  float centre_ = 0, low_ = 0, high_ = 0;
  double sum_ = 0, squares_ = 0;
};

__device__ void store_voxel(const PointPass& pass, int voxel, float value) {
  if (pass.to) pass.to[voxel] = value;
  if (!pass.output.data) return;
  const int64_t at = int64_t{voxel} * pass.output.voxel_stride;
  if (pass.output.dtype == DType::kFloat32)
    static_cast<float*>(pass.output.data)[at] = value;
  else
    static_cast<uint16_t*>(pass.output.data)[at] = to_bfloat16_bits(value);
}

template <LoadKind kKind>
__global__ void __launch_bounds__(kThreads) point_kernel(const __grid_constant__ PointPass pass) {
  __shared__ Resolved resolved[kMaxOps];
  if (threadIdx.x < pass.count) resolved[threadIdx.x] = resolve(pass, pass.ops[threadIdx.x]);
  __syncthreads();
  const int count = pass.extent[0] * pass.extent[1] * pass.extent[2];
  Gathering gathering;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPerThread; i < count;
       i += int64_t{gridDim.x} * kThreads * kPerThread) {
    const int first = static_cast<int>(i), here = ::min(kPerThread, count - first);
    float values[kPerThread] = {};
#pragma unroll
    for (int k = 0; k < kPerThread; ++k)
      if (k < here) values[k] = load_voxel<kKind>(pass, first + k);
    for (int o = 0; o < pass.count; ++o) {
      const PointOp& op = pass.ops[o];
      if (op.kind == PointKind::kNoise && ((op.first + first) & 3) == 0) {
        add_noise(op, first, values);
        continue;
      }
#pragma unroll
      for (int k = 0; k < kPerThread; ++k)
        if (k < here) values[k] = applied(pass, op, resolved[o], values[k], first + k);
    }
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      if (k >= here) continue;
      store_voxel(pass, first + k, values[k]);
      if (pass.moments >= 0) gathering.add(values[k]);
    }
  }
  if (pass.moments < 0) return;
  const PartialMoments all = merged_block(gathering.result());
  if (threadIdx.x == 0) pass.memory->partials[blockIdx.x] = all;
}

__global__ void __launch_bounds__(kThreads) finish_moments_kernel(MomentMemory* memory, int partials, int slot) {
  const int each = (partials + kThreads - 1) / kThreads;
  PartialMoments own{};
  for (int i = 0; i < each; ++i) {
    const int at = threadIdx.x * each + i;
    if (at < partials) own = merged(own, memory->partials[at]);
  }
  const PartialMoments all = merged_block(own);
  if (threadIdx.x != 0) return;
  const double variance = all.squares / all.count;
  memory->slots[slot] = {all.low, all.high, all.mean, sqrt(variance > 0 ? variance : 0)};
}

// Linear interpolation in one section, at a place that is moved inside first: as motion_blur defines it.
__device__ float section_value(const float* section, const int (&extent)[3], double y, double x) {
  y = fmin(fmax(y, 0.0), static_cast<double>(extent[1] - 1));
  x = fmin(fmax(x, 0.0), static_cast<double>(extent[2] - 1));
  const int iy = ::min(static_cast<int>(y), ::max(extent[1] - 2, 0)),
            ix = ::min(static_cast<int>(x), ::max(extent[2] - 2, 0));
  const float fy = static_cast<float>(y - static_cast<double>(iy)),
              fx = static_cast<float>(x - static_cast<double>(ix));
  const int down = extent[1] > 1 ? extent[2] : 0, right = extent[2] > 1 ? 1 : 0;
  const float* at = section + iy * extent[2] + ix;
  const float upper = at[0] + fx * (at[right] - at[0]), lower = at[down] + fx * (at[down + right] - at[down]);
  return upper + fy * (lower - upper);
}

__device__ float smeared(const SectionPass& pass, const float* section, int y, int x) {
  const int wanted = static_cast<int>(ceil(pass.length)) + 1, taps = wanted < 2 ? 2 : wanted;
  float sum = 0;
  for (int tap = 0; tap < taps; ++tap) {
    const double along = pass.length * (static_cast<double>(tap) / static_cast<double>(taps - 1) - 0.5);
    sum += section_value(section, pass.extent, static_cast<double>(y) + along * pass.y,
                         static_cast<double>(x) + along * pass.x);
  }
  return sum / static_cast<float>(taps);
}

__global__ void __launch_bounds__(kThreads) section_kernel(const __grid_constant__ SectionPass pass) {
  const int slice = pass.extent[1] * pass.extent[2], voxel = blockIdx.x * kThreads + threadIdx.x;
  if (voxel >= slice) return;
  if (pass.kind == SectionKind::kReplace) {  // each from what those before it left
    for (int i = 0; i < pass.count; ++i) {
      const int32_t* one = pass.sections + 3 * i;
      const float a = pass.to[int64_t{one[1]} * slice + voxel], b = pass.to[int64_t{one[2]} * slice + voxel];
      pass.to[int64_t{one[0]} * slice + voxel] = 0.5f * (a + b);
    }
    return;
  }
  const int64_t first = int64_t{pass.sections[blockIdx.y]} * slice;
  const float* from = pass.from + first;
  const int y = voxel / pass.extent[2], x = voxel % pass.extent[2];
  float value = from[voxel];
  if (pass.kind == SectionKind::kBlurX) value = smoothed(from, voxel, x, pass.extent[2], 1, pass.weights, pass.radius);
  if (pass.kind == SectionKind::kBlurY)
    value = smoothed(from, voxel, y, pass.extent[1], pass.extent[2], pass.weights, pass.radius);
  if (pass.kind == SectionKind::kSmear) value = smeared(pass, from, y, x);
  pass.to[first + voxel] = value;
}

void run(const PointPass& pass, Stream stream) {
  const int64_t voxels = int64_t{pass.extent[0]} * pass.extent[1] * pass.extent[2];
  const int64_t needed = (voxels + kThreads * kPerThread - 1) / (kThreads * kPerThread);
  const unsigned blocks = static_cast<unsigned>(std::min<int64_t>(needed, kMomentBlocks));
  switch (pass.load.kind) {
    case LoadKind::kPlain:
      point_kernel<LoadKind::kPlain><<<blocks, kThreads, 0, stream>>>(pass);
      break;
    case LoadKind::kBlur:
      point_kernel<LoadKind::kBlur><<<blocks, kThreads, 0, stream>>>(pass);
      break;
    case LoadKind::kSharpen:
      point_kernel<LoadKind::kSharpen><<<blocks, kThreads, 0, stream>>>(pass);
      break;
    case LoadKind::kLowResolution:
      point_kernel<LoadKind::kLowResolution><<<blocks, kThreads, 0, stream>>>(pass);
      break;
  }
  check_launch("intensity");
  if (pass.moments < 0) return;
  finish_moments_kernel<<<1, kThreads, 0, stream>>>(pass.memory, static_cast<int>(blocks), pass.moments);
  check_launch("moments of a patch");
}

void run(const SectionPass& pass, Stream stream) {
  if (pass.count == 0) return;
  const unsigned blocks = static_cast<unsigned>((pass.extent[1] * pass.extent[2] + kThreads - 1) / kThreads);
  const unsigned sections = pass.kind == SectionKind::kReplace ? 1 : static_cast<unsigned>(pass.count);
  section_kernel<<<dim3(blocks, sections), kThreads, 0, stream>>>(pass);
  check_launch("sections");
}

}  // namespace

void run_passes(const std::vector<Pass>& passes, Stream stream) {
  for (const Pass& pass : passes) std::visit([&](const auto& one) { run(one, stream); }, pass);
}

}  // namespace vox::cuda
