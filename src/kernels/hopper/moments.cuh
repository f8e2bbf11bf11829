// Count, mean and M2 (sum of squared differences from the mean) of a block's results, per channel, always merged in the
// same order (Chan, Golub, LeVeque 1979).
#pragma once

#include "kernels/hopper/device.cuh"

namespace vox::cuda {

// The part of `difference` of two means by which a merged mean moves towards the second.
__device__ __forceinline__ float share_of(float count, float other) {
  return other > 0 ? __fdividef(other, count + other) : 0;
}

// Of eight channels of the voxels that one thread computes. Summed about the thread's first values, because sums of
// squares about zero cancel where the mean is large beside the spread.
struct ThreadMoments {
  float sum[8], square[8], origin[8];
  int count;

  __device__ __forceinline__ void clear() {
    count = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] = square[k] = origin[k] = 0;
  }
  // `early`: the first values may be among these.
  __device__ __forceinline__ void add(const float (&values)[8], bool early) {
    if (early && count == 0) {
#pragma unroll
      for (int k = 0; k < 8; ++k) origin[k] = values[k];
    }
    ++count;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float difference = values[k] - origin[k];
      sum[k] += difference;
      square[k] = fmaf(difference, difference, square[k]);
    }
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
    float n = static_cast<float>(own.count), means[8], m2s[8];
    const float inverse = own.count > 0 ? 1 / n : 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float about = own.sum[k] * inverse;
      means[k] = own.origin[k] + about;
      m2s[k] = own.square[k] - own.sum[k] * about;
    }
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) {
      const float other = __shfl_down_sync(~0u, n, apart), share = share_of(n, other);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float difference = __shfl_down_sync(~0u, means[k], apart) - means[k];
        means[k] += difference * share;
        m2s[k] += __shfl_down_sync(~0u, m2s[k], apart) + difference * difference * n * share;
      }
      n += other;
    }
    if (lane >= 4) return;
    if (lane == 0) count[set][warp] = n;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      mean[set][warp][8 * lane + k] = means[k];
      m2[set][warp][8 * lane + k] = m2s[k];
    }
  }
  // To row[3][out], at the block's channel `lane`.
  __device__ __forceinline__ void store(float* row, int out, int set, int lane) const {
    float n = 0, average = 0, squares = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float other = count[set][warp], share = share_of(n, other), difference = mean[set][warp][lane] - average;
      average += difference * share;
      squares += m2[set][warp][lane] + difference * difference * n * share;
      n += other;
    }
    row[lane] = n;
    row[out + lane] = average;
    row[2 * out + lane] = squares < 0 ? 0 : squares;  // a NaN stays one
  }
};

}  // namespace vox::cuda
