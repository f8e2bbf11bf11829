// The norm and leaky ReLU that an input still waits for, applied to planes in shared memory: the normalised activation
// never exists in the GPU's memory.
#pragma once

#include "kernels/hopper/tiling.cuh"

namespace vox::cuda {

constexpr int kHalo = 18;                        // voxels of a plane's tile along y and x: 16 and one on each side
constexpr int kPlaneBytes = kHalo * kHalo * 64;  // of 32 channels
constexpr int kPlanePitch = 21 * 1024;           // operands and swizzle want planes at multiples of 1024
constexpr int kPrologueWarps = 7;

// x -> leaky_relu(x * scale[n][c] + shift[n][c]), rounded; scale null: x stays.
struct Prologue {
  const float* scale;
  const float* shift;
  float slope;  // 0 .. 1
  int channels;
};
inline Prologue prologue_of(const ConvInput& input) {
  VOX_ASSERT((input.scale == nullptr) == (input.shift == nullptr));
  VOX_ASSERT(is_aligned(input.scale) && is_aligned(input.shift));
  VOX_ASSERT(input.scale == nullptr || (input.slope >= 0 && input.slope <= 1));
  return {input.scale, input.shift, input.slope, static_cast<int>(input.channels)};
}

// The work of one of kPrologueWarps * 32 threads, kFirstThread and up: eight channels of a quarter of the voxels.
template <int kFirstThread>
class PlaneTransform {
 public:
  // channel: the first of the plane's 32, within the tensor.
  __device__ __forceinline__ PlaneTransform(const Prologue& prologue, int n, int channel)
      : slope_(prologue.slope), active_(prologue.scale != nullptr) {
    if (!active_) return;
    const int64_t first = static_cast<int64_t>(n) * prologue.channels + channel + thread() % 4 * 8;
    load(scale_, prologue.scale + first);
    load(shift_, prologue.shift + first);
  }
  // The plane's tile begins one voxel before (y, x). Voxels outside of the volume are padding and stay zero.
  __device__ __forceinline__ void apply(uint32_t plane, int y, int x, int size_y, int size_x) const {
    if (!active_) return;
    constexpr int kStep = kPrologueWarps * 8, kAtOnce = 2;
#pragma unroll 1
    for (int base = thread() / 4; base < kHalo * kHalo; base += kStep * kAtOnce) {
      uint4 v[kAtOnce];
      uint32_t address[kAtOnce];
      bool inside[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int row = base + j * kStep, at_y = y - 1 + row / kHalo, at_x = x - 1 + row % kHalo;
        inside[j] = row < kHalo * kHalo && static_cast<unsigned>(at_y) < static_cast<unsigned>(size_y) &&
                    static_cast<unsigned>(at_x) < static_cast<unsigned>(size_x);
        address[j] = plane + row * 64 + ((thread() % 4 ^ (row / 2 % 4)) << 4);  // swizzled
        if (inside[j])
          asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                       : "=r"(v[j].x), "=r"(v[j].y), "=r"(v[j].z), "=r"(v[j].w)
                       : "r"(address[j]));
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        if (inside[j]) {
          v[j] = make_uint4(both(v[j].x, 0), both(v[j].y, 2), both(v[j].z, 4), both(v[j].w, 6));
          asm volatile("st.shared.v4.u32 [%4], {%0,%1,%2,%3};" ::"r"(v[j].x), "r"(v[j].y), "r"(v[j].z), "r"(v[j].w),
                       "r"(address[j])
                       : "memory");
        }
    }
  }

 private:
  static __device__ __forceinline__ int thread() { return threadIdx.x - kFirstThread; }
  static __device__ __forceinline__ void load(float (&to)[8], const float* from) {
    const float4 a = __ldg(reinterpret_cast<const float4*>(from)), b = __ldg(reinterpret_cast<const float4*>(from) + 1);
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
  }
  __device__ __forceinline__ float one(float x, int k) const {
    const float z = fmaf(x, scale_[k], shift_[k]);
    return fmaxf(z, z * slope_);  // a NaN stays one: both are
  }
  __device__ __forceinline__ uint32_t both(uint32_t pair, int k) const {
    return pack(one(low_half(pair), k), one(high_half(pair), k + 1));
  }
  float slope_;
  bool active_;
  float scale_[8], shift_[8];
};

// Hands a plane that ordinary stores wrote to the tensor core; one arrival a warp.
__device__ __forceinline__ void release_plane(uint32_t barrier) {
  fence_before_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

}  // namespace vox::cuda
