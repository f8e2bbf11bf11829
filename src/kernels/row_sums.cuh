// Included by .cu files that finish what other kernels left as rows of float32 partial sums: one block of
// kFinishThreads adds many rows, in double and in an order that depends on their number alone.
#pragma once

#include "kernels/cuda_device.cuh"

namespace vox::cuda {

constexpr int kFinishThreads = 1024, kColumns = 8;  // 8 float32 columns are a sector of memory

// Sums over all threads (columns == 1), or over those whose number has the same remainder by 8 (columns == 8). The
// totals are in `totals[term][column]` for every thread.
template <int TERMS, int columns>
__device__ void sum_threads(double (&sums)[TERMS], double (&totals)[TERMS][columns]) {
  constexpr int kWarps = kFinishThreads / 32;
  __shared__ double of_warps[TERMS][kWarps][columns];
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int term = 0; term < TERMS; ++term) {
#pragma unroll
    for (int apart = 16; apart >= columns; apart /= 2) sums[term] += __shfl_xor_sync(0xffffffffu, sums[term], apart);
    if (thread % 32 < columns) of_warps[term][thread / 32][thread % 32] = sums[term];
  }
  __syncthreads();
  if (thread < TERMS * columns) {
    const int term = thread / columns, column = thread % columns;
    double total = 0;
#pragma unroll 8
    for (int warp = 0; warp < kWarps; ++warp) total += of_warps[term][warp][column];
    totals[term][column] = total;
  }
  __syncthreads();
}

// Sums of the 8 columns from `column` on over `rows` rows from `row` on; a row is [TERMS][width].
template <int TERMS>
__device__ void sum_rows(const float* partials, int64_t row, int64_t rows, int column, int width,
                         double (&totals)[TERMS][kColumns]) {
  const int thread = static_cast<int>(threadIdx.x), own = column + thread % kColumns;
  double sums[TERMS] = {};
  if (own < width) {
#pragma unroll 4
    for (int64_t r = thread / kColumns; r < rows; r += kFinishThreads / kColumns) {
      const float* const from = partials + (row + r) * TERMS * width + own;
#pragma unroll
      for (int term = 0; term < TERMS; ++term) sums[term] += from[term * width];
    }
  }
  sum_threads<TERMS, kColumns>(sums, totals);
}

}  // namespace vox::cuda
