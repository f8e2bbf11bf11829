#include "kernels/smooth_cuda.h"

#include "kernels/cuda_device.cuh"

namespace vox::cuda {
namespace {

constexpr int kColumns = 32, kRows = 8, kPlanes = 8;  // of a block; it walks along z

struct Extent {
  int z, y, x;
};

__device__ __forceinline__ float neighbours(int place, int size) {
  return static_cast<float>(1 + (place > 0) + (place + 1 < size));
}

// The sum over 3x3 voxels of a plane; for the gradient each divided by how many its own mean was taken over.
template <SmoothWay WAY>
__device__ __forceinline__ float plane_sum(const float* volume, const Extent& size, int z, int y, int x) {
  if (z < 0 || z >= size.z) return 0;
  float sum = 0;
#pragma unroll
  for (int dy = -1; dy <= 1; ++dy) {
    const int row = y + dy;
    if (row < 0 || row >= size.y) continue;
    const float* const from = volume + (int64_t{z} * size.y + row) * size.x;
    float of_row = 0;
#pragma unroll
    for (int dx = -1; dx <= 1; ++dx) {
      const int at = x + dx;
      if (at < 0 || at >= size.x) continue;
      of_row += WAY == SmoothWay::kForward ? from[at] : from[at] / neighbours(at, size.x);
    }
    sum += WAY == SmoothWay::kForward ? of_row : of_row / neighbours(row, size.y);
  }
  return WAY == SmoothWay::kForward ? sum : sum / neighbours(z, size.z);
}

template <SmoothWay WAY>
__global__ void __launch_bounds__(kColumns* kRows)
    smooth_kernel(const float* from, float* to, Extent size, int chunks) {
  const int x = static_cast<int>(blockIdx.x) * kColumns + static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(blockIdx.y) * kRows + static_cast<int>(threadIdx.y);
  if (x >= size.x || y >= size.y) return;
  const int first = static_cast<int>(blockIdx.z) % chunks * kPlanes;
  const int64_t begin = int64_t{blockIdx.z} / chunks * size.z * size.y * size.x;
  const float* const volume = from + begin;
  const float in_plane = neighbours(y, size.y) * neighbours(x, size.x);
  float below = plane_sum<WAY>(volume, size, first - 1, y, x), here = plane_sum<WAY>(volume, size, first, y, x);
  const int end = first + kPlanes < size.z ? first + kPlanes : size.z;
  for (int z = first; z < end; ++z) {
    const float above = plane_sum<WAY>(volume, size, z + 1, y, x);
    float sum = below + here + above;
    if (WAY == SmoothWay::kForward) sum /= in_plane * neighbours(z, size.z);
    to[begin + (int64_t{z} * size.y + y) * size.x + x] = sum;
    below = here;
    here = above;
  }
}

}  // namespace

bool smooth_available(const Volumes& shape) {
  constexpr int64_t kMostBlocks = 65535;
  return shape.volumes * ((shape.z + kPlanes - 1) / kPlanes) <= kMostBlocks && shape.y <= kMostBlocks * kRows &&
         shape.volumes * shape.z * shape.y * shape.x > 0;
}

void smooth(const float* from, float* to, const Volumes& shape, SmoothWay way, Stream stream) {
  VOX_ASSERT(smooth_available(shape) && from != to);
  const Extent size{static_cast<int>(shape.z), static_cast<int>(shape.y), static_cast<int>(shape.x)};
  const int chunks = (size.z + kPlanes - 1) / kPlanes;
  const dim3 grid(static_cast<unsigned>((size.x + kColumns - 1) / kColumns),
                  static_cast<unsigned>((size.y + kRows - 1) / kRows), static_cast<unsigned>(shape.volumes * chunks));
  const dim3 block(kColumns, kRows);
  way == SmoothWay::kForward ? smooth_kernel<SmoothWay::kForward><<<grid, block, 0, stream>>>(from, to, size, chunks)
                             : smooth_kernel<SmoothWay::kGradient><<<grid, block, 0, stream>>>(from, to, size, chunks);
  check_launch("mean of neighbours");
}

}  // namespace vox::cuda
