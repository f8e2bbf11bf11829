// Two blocks that share the work on the same voxels (a cluster of two) and give each other their sums, unrounded.
#pragma once

#include "kernels/hopper/device.cuh"

namespace vox::cuda {

__device__ __forceinline__ uint32_t block_of_pair() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of both blocks. What a block wrote before, the other sees after.
__device__ __forceinline__ void sync_pair() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// One lane arrives for its warp, after the warp has met. compute-sanitizer's racecheck follows only what a thread does
// itself; with this defined (-DVOX_RACECHECK=ON) every lane arrives, so that it can see the order.
#ifdef VOX_EVERY_LANE_ARRIVES
inline constexpr int kArrivals = 32;
#else
inline constexpr int kArrivals = 1;
#endif

// Each consumer warp trades with the warp of the same number in the other block: `there` is full when the other has
// written, `free` when the other has read what this one wrote.
template <int kWarps>
class PairExchange {
 public:
  static constexpr int kBytes = kWarps * 32 * 32;  // eight floats a thread
  static constexpr int kBarriers = 2 * kWarps;
  __device__ __forceinline__ PairExchange(uint32_t slots, uint32_t barriers)
      : slots_(slots), there_(barriers), free_(barriers + 8 * kWarps), other_(block_of_pair() ^ 1) {}
  __device__ __forceinline__ void init() const {  // by one thread, before the blocks meet
    for (int i = 0; i < kBarriers; ++i) barrier_init(there_ + 8 * i, kArrivals);
  }
  // `values` go to the same thread of the other block; it gets what that one gives.
  __device__ __forceinline__ void trade(float (&values)[8], int warp) {
    constexpr uint32_t kSecondHalf = kWarps * 32 * 16;
    const uint32_t slot = slots_ + threadIdx.x * 16, theirs = in_other(slot);
    wait(free_ + 8 * warp, parity_ ^ 1);
    put(theirs, values[0], values[1], values[2], values[3]);
    put(theirs + kSecondHalf, values[4], values[5], values[6], values[7]);
    arrive_after_warp(there_ + 8 * warp);
    wait(there_ + 8 * warp, parity_);
    get(slot, values[0], values[1], values[2], values[3]);
    get(slot + kSecondHalf, values[4], values[5], values[6], values[7]);
    arrive_after_warp(free_ + 8 * warp);
    parity_ ^= 1;
  }

 private:
  __device__ __forceinline__ uint32_t in_other(uint32_t address) const {
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(other_));
    return mapped;
  }
  static __device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\nWAIT:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
        "done, [%0], %1;\n"
        "@done bra DONE;\nbra WAIT;\nDONE:\n}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
  }
  __device__ __forceinline__ void arrive_after_warp(uint32_t barrier) const {
    __syncwarp();
    if (threadIdx.x % 32 < kArrivals)
      asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(in_other(barrier)) : "memory");
  }
  static __device__ __forceinline__ void put(uint32_t to, float a, float b, float c, float d) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
  }
  static __device__ __forceinline__ void get(uint32_t from, float& a, float& b, float& c, float& d) {
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "r"(from) : "memory");
  }
  uint32_t slots_, there_, free_, other_;
  uint32_t parity_ = 0;
};

}  // namespace vox::cuda
