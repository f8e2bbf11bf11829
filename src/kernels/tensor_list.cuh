// Many tensors in one launch: the list travels in the arguments of the kernel, and each block works on one chunk of one
// tensor.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/cuda_device.cuh"

namespace vox::cuda {

constexpr int kChunk = 8192;        // elements
constexpr int kChunkThreads = 256;  // a block
constexpr int kVector = 4;          // floats of one 16-byte access

// An Entry has `count`, the number of its elements.
template <class Entry>
struct TensorList {
  static constexpr int kCapacity = static_cast<int>((32 * 1024 - 1024) / (sizeof(Entry) + sizeof(int)));
  int size = 0;
  int first_chunk[kCapacity];  // of each tensor
  Entry entries[kCapacity];
};

inline int64_t chunks_of(int64_t count) {
  return (count + kChunk - 1) / kChunk;
}

// Calls launch(list, chunks, chunks before) for as many lists as it takes.
template <class Entry, class Launch>
void for_each_list(std::span<const Entry> tensors, const Launch& launch) {
  int64_t before = 0;
  TensorList<Entry> list;
  int64_t chunks = 0;
  const auto flush = [&] {
    if (chunks > 0) launch(list, static_cast<unsigned>(chunks), before);
    before += chunks;
    chunks = 0;
    list.size = 0;
  };
  for (const Entry& entry : tensors) {
    if (entry.count == 0) continue;
    if (list.size == TensorList<Entry>::kCapacity) flush();
    list.first_chunk[list.size] = static_cast<int>(chunks);
    list.entries[list.size++] = entry;
    chunks += chunks_of(entry.count);
  }
  flush();
}

struct Chunk {
  int tensor;
  int64_t begin;
  int count;
};

template <class Entry>
__device__ __forceinline__ Chunk chunk_of_block(const TensorList<Entry>& list) {
  const int chunk = static_cast<int>(blockIdx.x);
  int low = 0, high = list.size;  // the last tensor that does not start behind the chunk
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (list.first_chunk[middle] <= chunk ? low : high) = middle;
  }
  const int64_t begin = int64_t{chunk - list.first_chunk[low]} * kChunk;
  const int64_t left = list.entries[low].count - begin;
  return {low, begin, left < kChunk ? static_cast<int>(left) : kChunk};
}

__device__ __forceinline__ bool is_aligned(const void* pointer) {  // to 16 bytes; null is
  return (reinterpret_cast<uintptr_t>(pointer) & 15) == 0;
}

// Calls work(i, width) over the chunk: i in steps of kVector where `vectors`, width a compile-time constant.
template <class Work>
__device__ __forceinline__ void for_each_element(int count, bool vectors, const Work& work) {
  const int whole = vectors ? count / kVector * kVector : 0;
  for (int i = static_cast<int>(threadIdx.x) * kVector; i < whole; i += kChunkThreads * kVector)
    work(i, std::integral_constant<int, kVector>{});
  for (int i = whole + static_cast<int>(threadIdx.x); i < count; i += kChunkThreads)
    work(i, std::integral_constant<int, 1>{});
}

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};
template <int kWidth, class T>
__device__ __forceinline__ Pack<float, kWidth> load(const T* from) {
  const auto raw = *reinterpret_cast<const Pack<T, kWidth>*>(from);
  Pack<float, kWidth> result;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) result.at[k] = to_float(raw.at[k]);
  return result;
}
template <class T, int kWidth>
__device__ __forceinline__ void store(T* to, const Pack<float, kWidth>& values) {
  Pack<T, kWidth> raw;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) raw.at[k] = from_float<T>(values.at[k]);
  *reinterpret_cast<Pack<T, kWidth>*>(to) = raw;
}

}  // namespace vox::cuda
