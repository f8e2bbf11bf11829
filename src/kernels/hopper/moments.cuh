// Count, mean and M2 (sum of squared differences from the mean) of a block's results, per channel, always merged in the
// same order. Chan, Golub, LeVeque 1979.
#pragma once

#include "kernels/hopper/device.cuh"

namespace vox::cuda {

struct Moments {
  float count, mean, m2;
};
__device__ __forceinline__ Moments merged(const Moments& a, const Moments& b) {
  const float count = a.count + b.count, share = count > 0 ? b.count / count : 0, difference = b.mean - a.mean;
  return {count, a.mean + difference * share, a.m2 + b.m2 + difference * difference * a.count * share};
}

// Of eight channels of the voxels that one thread computes. Summed about the thread's first value (rounded, to take
// four registers and not eight), because sums of squares about zero cancel where the mean is large beside the spread.
struct ThreadMoments {
  float sum[8], square[8];
  uint32_t origin[4];
  int count;

  __device__ __forceinline__ void clear() {
    count = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] = square[k] = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) origin[k] = 0;
  }
  __device__ __forceinline__ void add(const float (&values)[8], const uint4& rounded) {
    if (count == 0) {
      origin[0] = rounded.x;
      origin[1] = rounded.y;
      origin[2] = rounded.z;
      origin[3] = rounded.w;
    }
    ++count;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float difference = values[k] - (k % 2 ? high_half(origin[k / 2]) : low_half(origin[k / 2]));
      sum[k] += difference;
      square[k] = fmaf(difference, difference, square[k]);
    }
  }
  __device__ __forceinline__ Moments of_channel(int k) const {
    if (count == 0) return {0, 0, 0};
    const float n = static_cast<float>(count), mean = sum[k] / n, m2 = square[k] - sum[k] * mean;
    const float about = k % 2 ? high_half(origin[k / 2]) : low_half(origin[k / 2]);
    return {n, about + mean, m2 < 0 ? 0 : m2};  // a NaN stays one
  }
};

// Of 32 channels over the kWarps warps that compute: a slot for each warp, merged in their order. Two sets, so that one
// may be read while the warps go on to fill the other.
template <int kWarps>
struct BlockMoments {
  float count[2][kWarps], mean[2][kWarps][32], m2[2][kWarps][32];

  // Threads of a warp with the same lane % 4 have the same channels (8 * (lane % 4) and up). All warps call this, then
  // meet at a barrier, then warp 0 calls store.
  __device__ __forceinline__ void put(const ThreadMoments& own, int set, int warp, int lane) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      Moments m = own.of_channel(k);
#pragma unroll
      for (int apart = 4; apart < 32; apart *= 2) {
        const Moments other{__shfl_down_sync(~0u, m.count, apart), __shfl_down_sync(~0u, m.mean, apart),
                            __shfl_down_sync(~0u, m.m2, apart)};
        m = merged(m, other);
      }
      if (lane < 4) {
        mean[set][warp][8 * lane + k] = m.mean;
        m2[set][warp][8 * lane + k] = m.m2;
        if (lane == 0) count[set][warp] = m.count;
      }
    }
  }
  // To row[3][out], at the block's channel `lane`.
  __device__ __forceinline__ void store(float* row, int out, int set, int lane) const {
    Moments m{count[set][0], mean[set][0][lane], m2[set][0][lane]};
    for (int warp = 1; warp < kWarps; ++warp)
      m = merged(m, {count[set][warp], mean[set][warp][lane], m2[set][warp][lane]});
    row[lane] = m.count;
    row[out + lane] = m.mean;
    row[2 * out + lane] = m.m2;
  }
};

}  // namespace vox::cuda
