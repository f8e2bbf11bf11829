// Included by .cu files that multiply on the tensor cores of any GPU from Ampere on.
// mma.m16n8k16 takes its operands in an order of channels that nobody prescribes: any order of the summed index will do
// if both factors have it. Here a thread's share of 32 channels is 8 neighbours, 16 bytes, as they lie in memory, and
// only the weights are rearranged, on their way into shared memory.
#pragma once

#include "kernels/cuda_device.cuh"

namespace vox::cuda {

constexpr int kBlock = 32;  // channels that four threads take together

__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                             __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Weights of two columns of 8 output channels and 16 input channels.
__device__ __forceinline__ void load_matrices(uint32_t (&b)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(shared_address));
}

// The same of matrices whose rows are the summed index: each of the four is transposed on the way.
__device__ __forceinline__ void load_transposed(uint32_t (&b)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(shared_address));
}

// Where an input channel stands among the summed: thread q of four has channels 8q to 8q + 7 of a block, four of them
// in each of two products, as pairs 2q and 2q + 8.
__device__ __forceinline__ int place_of_input(int channel) {
  const int q = channel % kBlock / 8, i = channel % 8;
  return channel / kBlock * kBlock + i / 4 * 16 + i % 4 / 2 * 8 + 2 * q + i % 2;
}

// Where an output channel of a block stands among the columns, for a thread to have 8 neighbours of them, too: column
// 2q + e of part j is channel 8q + 2j + e.
__device__ __forceinline__ int place_of_output(int channel) {
  const int q = channel / 8, i = channel % 8;
  return i / 2 * 8 + 2 * q + i % 2;
}

// Rows of 8 elements more than needed: 8 rows begin in 8 different sets of banks.
template <int IN>
constexpr int kRow = IN + 8;

// The left factor of one of the two products of a block, from two rows' 16 bytes.
struct LeftFactor {
  uint32_t words[4];
  __device__ __forceinline__ LeftFactor(const uint4& low, const uint4& high, bool first)
      : words{first ? low.x : low.z, first ? high.x : high.z, first ? low.y : low.w, first ? high.y : high.w} {}
};

}  // namespace vox::cuda
