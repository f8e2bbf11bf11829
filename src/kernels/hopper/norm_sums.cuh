// Sums for the backward of a norm, taken where a data gradient leaves its accumulator: no pass reads it again for them.
// dz = da * leaky_relu'(z) is formed from the gradient as it is stored, rounded, so that its terms are those that
// norm_grad_sums (kernels/norm_cuda.h) adds, and only the order differs; the order is always the same.
// What is stored stays da: the pass that makes dx reads x in any case and has the mask for nothing, and whoever else
// gets the gradient need not know.
#pragma once

#include "kernels/hopper/tiling.cuh"

namespace vox::cuda {

// Of an output tensor; rows null: nobody wants sums of it.
struct NormSums {
  int64_t x_after_y;  // bytes from a place in the gradient to that in x: an address less to keep in registers
  const float *scale, *shift, *mean, *rstd;
  float slope;
  float* rows;
};
inline NormSums norm_sums_of(const ConvOutput& output) {
  const ConvNorm& norm = output.norm;
  if (norm.x == nullptr) return {};
  VOX_ASSERT(is_aligned(norm.x) && norm.scale && norm.shift && norm.mean && norm.rstd && norm.sums);
  const auto apart = reinterpret_cast<intptr_t>(norm.x) - reinterpret_cast<intptr_t>(output.y);
  return {apart, norm.scale, norm.shift, norm.mean, norm.rstd, norm.slope, norm.sums};
}

// Eight channels that nobody reads again here. Volatile, because it is asked for long before it is needed.
__device__ __forceinline__ uint4 load_ahead(const Bf16* y, int64_t x_after_y) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(reinterpret_cast<const char*>(y) + x_after_y));
  return v;
}

// Of eight channels of the voxels that one thread computes.
struct ThreadNormSums {
  float dz[8], product[8];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int k = 0; k < 8; ++k) dz[k] = product[k] = 0;
  }
  // coefficients: scale, shift and mean of 32 channels in shared memory, where they cost no registers.
  __device__ __forceinline__ void add(const uint4& da, const uint4& x, const float (&coefficients)[3][32], int channel,
                                      float slope) {
    const uint32_t of_da[4] = {da.x, da.y, da.z, da.w}, of_x[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int four = 0; four < 8; four += 4) {
      float c[3][4];
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        const float4 v = *reinterpret_cast<const float4*>(&coefficients[i][channel + four]);
        c[i][0] = v.x, c[i][1] = v.y, c[i][2] = v.z, c[i][3] = v.w;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t a = of_da[(four + k) / 2], b = of_x[(four + k) / 2];
        add(four + k, k % 2 ? high_half(a) : low_half(a), k % 2 ? high_half(b) : low_half(b), c[0][k], c[1][k], c[2][k],
            slope);
      }
    }
  }

 private:
  __device__ __forceinline__ void add(int k, float da, float x, float scale, float shift, float mean, float slope) {
    const float z = fmaf(x, scale, shift), masked = z > 0 ? da : da * slope;
    dz[k] += masked;
    product[k] = fmaf(masked, x - mean, product[k]);
  }
};

// Of 32 channels over the kWarps warps that compute, added in their order.
template <int kWarps>
struct BlockNormSums {
  alignas(16) float coefficients[3][32];
  float dz[kWarps][32], product[kWarps][32];

  // first: the block's first channel within sample n of the tensor. A barrier before the first use.
  __device__ __forceinline__ void fetch(const NormSums& of, int64_t first) {
    if (threadIdx.x >= 96) return;
    const float* const from = threadIdx.x < 32 ? of.scale : threadIdx.x < 64 ? of.shift : of.mean;
    coefficients[threadIdx.x / 32][threadIdx.x % 32] = from[first + threadIdx.x % 32];
  }
  // Threads of a warp with the same lane % 4 have the same channels (8 * (lane % 4) and up). All warps call this, then
  // meet at a barrier, then warp 0 calls store.
  __device__ __forceinline__ void put(const ThreadNormSums& own, int warp, int lane) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float sum = own.dz[k], sum_product = own.product[k];
#pragma unroll
      for (int apart = 4; apart < 32; apart *= 2) {
        sum += __shfl_down_sync(~0u, sum, apart);
        sum_product += __shfl_down_sync(~0u, sum_product, apart);
      }
      if (lane >= 4) continue;
      dz[warp][8 * lane + k] = sum;
      product[warp][8 * lane + k] = sum_product;
    }
  }
  // To row[2][channels] at the block's channel `lane`.
  __device__ __forceinline__ void store(float* row, int channels, float rstd, int lane) const {
    float sum = 0, sum_product = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      sum += dz[warp][lane];
      sum_product += product[warp][lane];
    }
    row[lane] = sum;
    row[channels + lane] = sum_product * rstd;
  }
};

}  // namespace vox::cuda
