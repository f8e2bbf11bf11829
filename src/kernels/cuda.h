// What the CUDA kernels' interfaces share, without the headers of CUDA: raw device pointers, sizes, a stream. Kernels
// are enqueued and nothing waits; whoever calls keeps the memory alive until the stream is past them.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace vox::cuda {

// Whether the kernels are compiled in. Code behind `if constexpr (kCompiledIn)` needs them only where it is true.
#ifdef VOX_HAVE_CUDA
constexpr bool kCompiledIn = true;
#else
constexpr bool kCompiledIn = false;
#endif

using Stream = CUstream_st*;

enum class Scalar : uint8_t { kFloat32, kBFloat16, kFloat16 };

// A tensor [n, z, y, x, c] in this order of memory (torch: channels_last_3d), z, y and x already multiplied where a
// kernel does not care about them.
struct Shape5 {
  int64_t n = 1, z = 1, y = 1, x = 1, c = 1;
  int64_t voxels() const { return z * y * x; }  // of one sample
  int64_t count() const { return n * voxels() * c; }
};

}  // namespace vox::cuda
