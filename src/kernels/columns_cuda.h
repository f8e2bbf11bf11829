// Convolutions as matrix products: the windows of a volume become the rows of a matrix ("columns", by the literature's
// name for them), [window][kernel z][kernel y][kernel x][channel], and what a product left in such rows is added up
// into a volume again.
#pragma once

#include "kernels/cuda.h"

namespace vox::cuda {

struct Windows {
  Shape5 volume;                // [n, z, y, x, c]
  int64_t z = 1, y = 1, x = 1;  // how many windows there are along each axis
  int kernel[3] = {1, 1, 1};    // z, y, x
  int stride[3] = {1, 1, 1};    // from window to window
  int padding[3] = {0, 0, 0};   // how far the first window begins before the volume
  int64_t pitch = 0;            // elements from row to row: width() or more, a multiple of 8
  int64_t rows() const { return volume.n * z * y * x; }
  int64_t width() const { return int64_t{kernel[0]} * kernel[1] * kernel[2] * volume.c; }
};
bool columns_available(const Windows& windows);

// What is gathered; the norm and leaky ReLU that it waits for are applied on load.
struct Gathered {
  const void* volume = nullptr;
  Scalar type = Scalar::kBFloat16;
  const float* scale = nullptr;  // [n][c] each, or null
  const float* shift = nullptr;
  float slope = 1;  // 1: no activation
};
// Zeros outside of the volume, and between width() and pitch. `to` is half precision.
void gather_columns(const Windows& windows, const Gathered& from, void* columns, Scalar to, Stream stream);

// Each voxel is the sum of its places in all windows that have it, in the order of the kernel's taps, in float32.
struct ColumnSum {
  const void* columns = nullptr;
  const void* more = nullptr;  // a second matrix to be added, or null
  Scalar type = Scalar::kFloat32;
  const float* bias = nullptr;  // [c], or null
};
void sum_columns(const Windows& windows, const ColumnSum& sum, void* volume, Scalar to, Stream stream);

}  // namespace vox::cuda
