#include "kernels/cuda_device.cuh"
#include "kernels/lap_cuda.h"

namespace vox::cuda {
namespace {

// One clock for all multiprocessors, unlike clock64(). An H200 moves it on by 32 ns at a time; where that is coarser,
// it evens out over the steps that a sum is made of.
__device__ int64_t nanoseconds_now() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

// The clock is read twice, so that what the sums take belongs to no lap.
__global__ void take_lap_kernel(int64_t* nanoseconds, int64_t* last, const __grid_constant__ LapShares shares) {
  const int64_t took = nanoseconds_now() - *last;
  const int64_t share = shares.count > 1 ? took / shares.count : took;
  for (int i = 0; i < shares.count; ++i) nanoseconds[shares.slot[i]] += share;
  *last = nanoseconds_now();
}

}  // namespace

void take_lap(int64_t* nanoseconds, int64_t* last, const LapShares& shares, Stream stream) {
  take_lap_kernel<<<1, 1, 0, stream>>>(nanoseconds, last, shares);
  check_launch("take_lap");
}

}  // namespace vox::cuda
