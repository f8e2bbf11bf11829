// The definition of the gather, one output voxel at a time, for the CPU and the GPU: coordinate map, padding rule,
// interpolation and conversion. Everything faster must give the same bits (gather_test.cpp).
//
// - Position, per source axis, in float32 and relative to the integer origin:
//     fma(m[2], x, fma(m[1], y, fma(m[0], z, offset))).
//   Rounding is monotone, so the extremes over a patch lie at its corners and the interior of a row is an interval.
// - Nearest: floor(position + 0.5), in float32; halves go up.
// - Linear: the two taps of each axis are floor(position) and the next; a tap of weight zero is not looked at, so that
//   it can neither be missing nor poison the sum (0 * inf). First x, then y, then z: fma(f, b - a, a).
// - A tap outside the volume is pad_value (kConstant), the nearest voxel (kEdge), or mirrored about the border voxel
//   (kReflect, as NumPy). A tap inside is stored * scale + offset.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/host_device.h"
#include "kernels/gather.h"

namespace vox {

template <class T>
struct GatherSource {
  const T* data;        // voxel `begin` of the volume
  int64_t origin[3];    // volume index of position zero
  int64_t size[3];      // of the volume
  int64_t begin[3];     // of the voxels that are here
  int64_t end[3];       // past the last of them
  int64_t stride[3];    // elements
  float scale, offset;  // value = stored * scale + offset; skipped where `scaled` is false
  bool scaled;
  Padding padding;
  float pad_value;
};

struct GatherAxis {  // a row of the map: one source axis
  float z, y, x, offset;
};

VOX_HOST_DEVICE float row_start(const GatherAxis& axis, float z, float y) {
  return std::fma(axis.y, y, std::fma(axis.z, z, axis.offset));
}
VOX_HOST_DEVICE float position_at(const GatherAxis& axis, float start, float x) {
  return std::fma(axis.x, x, start);
}

// The voxel that index `i` of an axis reads; -1: none, it is padding.
VOX_HOST_DEVICE int64_t padded_index(int64_t i, int64_t size, Padding padding) {
  if (i >= 0 && i < size) return i;
  if (padding == Padding::kConstant) return -1;
  if (padding == Padding::kEdge || size == 1) return i < 0 ? 0 : size - 1;
  const int64_t period = 2 * (size - 1);
  const int64_t folded = ((i % period) + period) % period;
  return folded < size ? folded : period - folded;
}

template <class T>
VOX_HOST_DEVICE float tap(const GatherSource<T>& source, int64_t z, int64_t y, int64_t x) {
  if (z < 0 || y < 0 || x < 0) return source.pad_value;
  const float stored = static_cast<float>(source.data[(z - source.begin[0]) * source.stride[0] +
                                                      (y - source.begin[1]) * source.stride[1] + x - source.begin[2]]);
  return source.scaled ? std::fma(source.scale, stored, source.offset) : stored;
}

VOX_HOST_DEVICE float mix(float a, float b, float fraction) {
  return fraction == 0.0f ? a : std::fma(fraction, b - a, a);
}

template <class T>
VOX_HOST_DEVICE float gather_nearest(const GatherSource<T>& source, float z, float y, float x) {
  const float position[3] = {z, y, x};
  int64_t index[3];
  for (int axis = 0; axis < 3; ++axis)
    index[axis] = padded_index(source.origin[axis] + static_cast<int64_t>(std::floor(position[axis] + 0.5f)),
                               source.size[axis], source.padding);
  return tap(source, index[0], index[1], index[2]);
}

template <class T>
VOX_HOST_DEVICE float gather_linear(const GatherSource<T>& source, float z, float y, float x) {
  const float position[3] = {z, y, x};
  int64_t low[3], high[3];
  float fraction[3];
  for (int axis = 0; axis < 3; ++axis) {
    const float base = std::floor(position[axis]);
    const int64_t index = source.origin[axis] + static_cast<int64_t>(base);
    fraction[axis] = position[axis] - base;
    low[axis] = padded_index(index, source.size[axis], source.padding);
    high[axis] = fraction[axis] == 0.0f ? low[axis] : padded_index(index + 1, source.size[axis], source.padding);
  }
  float plane[2];
  for (int k = 0; k < 2; ++k) {
    const int64_t iz = k == 0 ? low[0] : high[0];
    const float near = mix(tap(source, iz, low[1], low[2]), tap(source, iz, low[1], high[2]), fraction[2]);
    const float far = mix(tap(source, iz, high[1], low[2]), tap(source, iz, high[1], high[2]), fraction[2]);
    plane[k] = mix(near, far, fraction[1]);
  }
  return mix(plane[0], plane[1], fraction[0]);
}

VOX_HOST_DEVICE uint8_t to_label(float value) {  // halves go up, and what does not fit is the nearest that does
  const float rounded = std::floor(value + 0.5f);
  return rounded >= 255.0f ? uint8_t{255} : rounded > 0.0f ? static_cast<uint8_t>(rounded) : uint8_t{0};
}

VOX_HOST_DEVICE uint16_t to_bfloat16_bits(float value) {  // to nearest even; NaN stays NaN
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace vox
