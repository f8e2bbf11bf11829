// A block thins a slice from beginning to end: 32 pixels to a word, in shared memory where that holds the slice as one
// turn found it and as it leaves it. Words of zeros lie around rows and slice.
#include <algorithm>
#include <utility>

#include "kernels/cuda_device.cuh"
#include "kernels/thinning_2d_table.h"
#include "kernels/thinning_cuda.h"

namespace vox {
namespace {

constexpr int kSliceThreads = 512, kSliceWarps = kSliceThreads / 32;
constexpr int kMostSlices = 1024;          // that are worked on at a time
constexpr int64_t kSliceBytes = 96 << 10;  // of shared memory, at most: every GPU since Ampere has it

constexpr thinning::Table kTable = thinning::make_table();
__constant__ thinning::Table table_there = kTable;

struct Slice {
  int y, x;
  int words, stride;      // words of a row, and from row to row
  int first, last, size;  // words of pixels lie from first to last
};

// Pixels of the word that this turn takes away. One whose face neighbours are all set never goes.
__device__ __forceinline__ uint32_t pixels_to_go(const uint32_t* word, int stride, const uint8_t* when, uint8_t turn) {
  const uint32_t here = word[0];
  if (here == 0) return 0;
  const auto widened = [](const uint32_t* middle) {  // bits -1 to 32, the first one lowest
    return middle[-1] >> 31 | uint64_t{middle[0]} << 1 | uint64_t{middle[1] & 1} << 33;
  };
  const uint64_t above = widened(word - stride), own = widened(word), below = widened(word + stride);
  const uint64_t cross = above >> 1 & below >> 1 & own & own >> 2;
  uint32_t gone = 0;
  for (uint32_t border = here & ~static_cast<uint32_t>(cross); border != 0; border &= border - 1) {
    const int x = __ffs(static_cast<int>(border)) - 1;
    const uint64_t pixels = (above >> x & 7) | (own >> x & 7) << 3 | (below >> x & 7) << 6;
    if ((when[pixels] & turn) != 0) gone |= 1u << x;
  }
  return gone;
}

// Several words at a time, so that a warp does not wait for each.
__device__ __forceinline__ void pack_slice(uint32_t* words, const uint8_t* mask, const Slice& slice) {
  constexpr int kAtOnce = 8;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int count = slice.y * slice.words;
  for (int base = warp * kAtOnce; base < count; base += kSliceWarps * kAtOnce) {
    uint8_t pixels[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int y = (base + i) / slice.words, x = (base + i) % slice.words * 32 + lane;
      pixels[i] = base + i < count && x < slice.x ? mask[int64_t{y} * slice.x + x] : uint8_t{0};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const uint32_t bits = __ballot_sync(~0u, pixels[i] != 0);
      const int y = (base + i) / slice.words, word = (base + i) % slice.words;
      if (lane == 0 && base + i < count) words[slice.first + y * slice.stride + word] = bits;
    }
  }
}

// Two sub-iterations in turn, until neither takes anything away.
__device__ __forceinline__ const uint32_t* thin_slice(uint32_t* words, uint32_t* next, const uint8_t* when,
                                                      const Slice& slice) {
  int turns_without_change = 0;
  for (int turn = 0; turns_without_change < 2; ++turn) {
    bool changed = false;
    for (int i = slice.first + static_cast<int>(threadIdx.x); i <= slice.last; i += kSliceThreads) {
      const uint32_t gone =
          pixels_to_go(words + i, slice.stride, when, turn % 2 == 0 ? thinning::kFirst : thinning::kSecond);
      next[i] = words[i] & ~gone;
      changed |= gone != 0;
    }
    turns_without_change = __syncthreads_or(changed) != 0 ? 0 : turns_without_change + 1;
    uint32_t* const before = words;
    words = next;
    next = before;
  }
  return words;
}

// `workspace` null: slices fit into shared memory.
__global__ void __launch_bounds__(kSliceThreads)
    thin_slices(uint8_t* out, const uint8_t* mask, int64_t slices, Slice slice, uint32_t* workspace) {
  extern __shared__ uint32_t slice_memory[];
  __shared__ uint8_t when[512];
  uint32_t* const words = workspace == nullptr ? slice_memory : workspace + int64_t{blockIdx.x} * 2 * slice.size;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 512; i += kSliceThreads) when[i] = table_there.when[i];
  for (int i = thread; i < 2 * slice.size; i += kSliceThreads) words[i] = 0;
  const int64_t pixels = int64_t{slice.y} * slice.x;
  for (int64_t number = blockIdx.x; number < slices; number += gridDim.x) {
    __syncthreads();
    pack_slice(words, mask + number * pixels, slice);
    __syncthreads();
    const uint32_t* const thinned = thin_slice(words, words + slice.size, when, slice);
    uint8_t* const out_slice = out + number * pixels;
    for (int64_t i = thread; i < pixels; i += kSliceThreads) {
      const int y = static_cast<int>(i / slice.x), x = static_cast<int>(i % slice.x);
      out_slice[i] = thinned[slice.first + y * slice.stride + x / 32] >> (x % 32) & 1;
    }
  }
}

Slice slice_of(const Extent3& extent) {
  const int64_t words = (extent.x + 31) / 32, size = (extent.y + 2) * (words + 1) + 1;
  VOX_CHECK(size < int64_t{1} << 29 && extent.y * extent.x < int64_t{1} << 31, "thinning on the GPU: slices of ",
            extent, " are too large; thin parts of them, or on the CPU");
  Slice slice{static_cast<int>(extent.y), static_cast<int>(extent.x), static_cast<int>(words)};
  slice.stride = slice.words + 1;
  slice.first = slice.stride + 1;
  slice.last = slice.y * slice.stride + slice.words;
  slice.size = static_cast<int>(size);
  return slice;
}

int64_t bytes_of(const Slice& slice) {  // before a turn and after it
  return int64_t{2} * slice.size * static_cast<int64_t>(sizeof(uint32_t));
}

}  // namespace

int64_t thin_2d_workspace(int64_t volumes, const Extent3& extent) {
  if (extent.voxels() == 0) return 0;
  const Slice slice = slice_of(extent);
  return bytes_of(slice) <= kSliceBytes ? 0 : std::min<int64_t>(volumes * extent.z, kMostSlices) * slice.size;
}

void thin_2d_cuda(uint8_t* out, const uint8_t* mask, int64_t volumes, const Extent3& extent, uint64_t* workspace,
                  cuda::Stream stream) {
  const int64_t slices = volumes * extent.z;
  if (slices == 0 || extent.voxels() == 0) return;
  const Slice slice = slice_of(extent);
  const bool fits = bytes_of(slice) <= kSliceBytes;
  const int shared = fits ? static_cast<int>(bytes_of(slice)) : 0;
  cuda::check(
      cudaFuncSetAttribute(thin_slices, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSliceBytes)),
      "thinning");
  const auto blocks =
      static_cast<unsigned>(fits ? std::min<int64_t>(slices, 1 << 30) : std::min<int64_t>(slices, kMostSlices));
  thin_slices<<<blocks, kSliceThreads, static_cast<size_t>(shared), stream>>>(
      out, mask, slices, slice, fits ? nullptr : reinterpret_cast<uint32_t*>(workspace));
  cuda::check_launch("thinning");
}

}  // namespace vox
