#include "kernels/interleave_cuda.h"

#include "kernels/channels_cuda.cuh"

namespace vox::cuda {
namespace {

constexpr int kMostChannels = 32, kVoxels = 2 * kWalkThreads;  // of a block; a multiple of 8

// Read along the voxels of a channel, written along the channels of a voxel.
template <class T>
__global__ void __launch_bounds__(kWalkThreads)
    interleave_kernel(const float* from, T* to, int64_t voxels, int channels) {
  extern __shared__ uint4 memory[];
  T* const shared = reinterpret_cast<T*>(memory);
  const int64_t first = int64_t{blockIdx.x} * kVoxels, begin = int64_t{blockIdx.y} * voxels * channels;
  const int count = static_cast<int>(voxels - first < kVoxels ? voxels - first : kVoxels);
  for (int channel = 0; channel < channels; ++channel) {
    const float* const row = from + begin + channel * voxels + first;
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kVoxels; i += kWalkThreads) {
      if (i < count) shared[i * channels + channel] = from_float<T>(row[i]);
    }
  }
  __syncthreads();
  T* const out = to + begin + first * channels;
  const int elements = count * channels;
  const bool whole = reinterpret_cast<uintptr_t>(out) % 16 == 0;
  const int wide = whole ? elements / 8 : 0;
  for (int i = static_cast<int>(threadIdx.x); i < wide; i += kWalkThreads) reinterpret_cast<uint4*>(out)[i] = memory[i];
  for (int i = wide * 8 + static_cast<int>(threadIdx.x); i < elements; i += kWalkThreads) out[i] = shared[i];
}

}  // namespace

bool interleave_available(const Shape5& shape) {
  return shape.c > 1 && shape.c <= kMostChannels && shape.n < 65536 && shape.voxels() > 0 &&
         shape.voxels() / kVoxels < (int64_t{1} << 30);
}

void interleave(const float* from, void* to, Scalar type, const Shape5& shape, Stream stream) {
  VOX_ASSERT(interleave_available(shape) && type != Scalar::kFloat32);
  const int64_t voxels = shape.voxels();
  const dim3 grid(static_cast<unsigned>((voxels + kVoxels - 1) / kVoxels), static_cast<unsigned>(shape.n));
  const auto channels = static_cast<int>(shape.c);
  dispatch(type, [&]<class T>(T) {
    if constexpr (sizeof(T) == 2) {
      interleave_kernel<T>
          <<<grid, kWalkThreads, kVoxels * channels * sizeof(T), stream>>>(from, static_cast<T*>(to), voxels, channels);
    }
  });
  check_launch("interleaved channels");
}

}  // namespace vox::cuda
