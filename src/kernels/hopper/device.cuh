// What Hopper adds, as functions: barriers in shared memory that count bytes (mbarrier), tile copies by the copy engine
// (TMA), and matrix products of a warpgroup (wgmma) that read their operands through descriptors.
#pragma once

#include <cuda.h>

#include "kernels/cuda_device.cuh"

namespace vox::cuda {

using Bf16 = __nv_bfloat16;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers. A phase ends when all arrivals and all expected bytes are there; phases are told apart by their parity.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {  // arrives, too
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nWAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\nbra WAIT;\nDONE:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Orders ordinary accesses to shared memory before those of the tensor core and the copy engine. Every thread that read
// or wrote executes it before it arrives at the barrier that hands the memory over. Reads count: without it a stage
// that was read by ldmatrix and then refilled gave wrong fragments in a tenth of the launches.
__device__ __forceinline__ void fence_before_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
template <int kThreads>
__device__ __forceinline__ void sync_consumers() {  // of the block's warps those that multiply; barrier 0 is all warps'
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// Warpgroups in turn: one waits for what another gives. Barriers 2 and up.
__device__ __forceinline__ void wait_for_turn(int warpgroup) {
  asm volatile("bar.sync %0, 256;" ::"r"(warpgroup + 2) : "memory");
}
__device__ __forceinline__ void give_turn(int warpgroup) {
  asm volatile("bar.arrive %0, 256;" ::"r"(warpgroup + 2) : "memory");
}

// A stage of a ring of buffers in shared memory, and how often the ring has been around.
template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// A box of a [n, z, y, x, c] tensor. What lies outside of the tensor arrives as zeros: that is the padding.
struct BoxCorner {
  int c, x, y, z, n;
};
__device__ __forceinline__ void copy_box(uint32_t destination, const CUtensorMap* map, uint32_t barrier,
                                         const BoxCorner& at) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(at.c), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.n)
      : "memory");
}
__device__ __forceinline__ void copy_bytes(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

// Registers move from the warps that load to those that multiply.
template <int kRegisters>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// An operand of a product: rows of 64 bytes (32 channels of a voxel) in shared memory with the 64-byte swizzle. The
// swizzle is a function of the absolute address, so an operand may start at ANY row of a tile that the copy engine
// wrote: all 27 taps read one tile, without a copy. The strides may overlap, too.
__device__ __forceinline__ uint64_t operand(uint32_t address, uint32_t leading_stride, uint32_t stride) {
  constexpr uint32_t kSwizzle64 = 2u << 30;
  const uint32_t low = (address >> 4) | ((leading_stride >> 4) << 16), high = (stride >> 4) | kSwizzle64;
  return (static_cast<uint64_t>(high) << 32) | low;
}
__device__ __forceinline__ uint64_t moved(uint64_t operand, uint32_t bytes) {  // one addition of 32 bits
  return (operand & 0xffffffff00000000ull) | (static_cast<uint32_t>(operand) + (bytes >> 4));
}

__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void products_wait() {  // until at most kLeft committed groups are unfinished
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Keeps the compiler from moving uses of the accumulator across the fences above.
template <int kCount>
__device__ __forceinline__ void pin(float (&accumulator)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(accumulator[i])::"memory");
}

// sums[64 x 96] += a[64 x 16] * b[16 x 96]. The summed index runs along the rows of 64 bytes (channels of a voxel) or
// across them (voxels).
enum class Summed { kAlongRows = 0, kAcrossRows = 1 };
#define VOX_SUMS_8(i)                                                                                           \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), \
      "+f"(sums[i + 6]), "+f"(sums[i + 7])
template <Summed kSummed>
__device__ __forceinline__ void multiply_add(float (&sums)[48], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "%48, %49, p, 1, 1, %50, %50;\n}\n"
      : VOX_SUMS_8(0), VOX_SUMS_8(8), VOX_SUMS_8(16), VOX_SUMS_8(24), VOX_SUMS_8(32), VOX_SUMS_8(40)
      : "l"(a), "l"(b), "n"(static_cast<int>(kSummed)));
}
#undef VOX_SUMS_8

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}
__device__ __forceinline__ uint4 pack(const float (&v)[8]) {
  return make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
}
__device__ __forceinline__ float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
// In a product's result a thread has the columns 8j + 2q and 8j + 2q + 1 (q: its number in a group of four). Weights
// are stored so that these are the channels 8q + 2j and 8q + 2j + 1: eight consecutive ones, one store of 16 bytes.
__host__ __device__ __forceinline__ constexpr int channel_of_column(int column) {
  return 8 * (column % 8 / 2) + 2 * (column / 8) + column % 2;
}

}  // namespace vox::cuda
