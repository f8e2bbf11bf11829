// The definition of the gather, one output voxel at a time, for the CPU and the GPU: coordinate map, padding rule,
// interpolation and conversion. Everything faster must give the same bits (gather_test.cpp).
//
// - Position, per source axis, in float32 and relative to the integer origin:
//     fma(m[2], x, fma(m[1], y, fma(m[0], z, offset))).
//   Rounding is monotone, so the extremes over a patch lie at its corners and the interior of a row is an interval.
// - Nearest: floor(position + 0.5), in float32; halves go up.
// - Linear: the two taps of each axis are floor(position) and the next; a tap of weight zero is not looked at, so that
//   it can neither be missing nor poison the sum (0 * inf). First x, then y, then z: fma(f, b - a, a).
// - Label: each label among the same taps has the weight that linear interpolation gives to "is this label"; the
// largest
//   weight wins, of equal ones the lowest label. No value comes out that is not a label (or the padding).
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

struct LinearTaps {  // the voxels to either side on each axis, -1 where there is none
  int64_t low[3], high[3];
  float fraction[3];
};

template <class T>
VOX_HOST_DEVICE LinearTaps taps_at(const GatherSource<T>& source, float z, float y, float x) {
  const float position[3] = {z, y, x};
  LinearTaps taps;
  for (int axis = 0; axis < 3; ++axis) {
    const float base = std::floor(position[axis]);
    const int64_t index = source.origin[axis] + static_cast<int64_t>(base);
    taps.fraction[axis] = position[axis] - base;
    taps.low[axis] = padded_index(index, source.size[axis], source.padding);
    taps.high[axis] =
        taps.fraction[axis] == 0.0f ? taps.low[axis] : padded_index(index + 1, source.size[axis], source.padding);
  }
  return taps;
}

// corner[i]: bit 2 is the upper voxel along z, bit 1 along y, bit 0 along x.
VOX_HOST_DEVICE float mix_corners(const float (&corner)[8], const float (&fraction)[3]) {
  float plane[2];
  for (int k = 0; k < 2; ++k)
    plane[k] = mix(mix(corner[4 * k], corner[4 * k + 1], fraction[2]),
                   mix(corner[4 * k + 2], corner[4 * k + 3], fraction[2]), fraction[1]);
  return mix(plane[0], plane[1], fraction[0]);
}

template <class T>
VOX_HOST_DEVICE void read_corners(const GatherSource<T>& source, const LinearTaps& taps, float (&corner)[8]) {
  for (int i = 0; i < 8; ++i)
    corner[i] = tap(source, i & 4 ? taps.high[0] : taps.low[0], i & 2 ? taps.high[1] : taps.low[1],
                    i & 1 ? taps.high[2] : taps.low[2]);
}

template <class T>
VOX_HOST_DEVICE float gather_linear(const GatherSource<T>& source, float z, float y, float x) {
  const LinearTaps taps = taps_at(source, z, y, x);
  float corner[8];
  read_corners(source, taps, corner);
  return mix_corners(corner, taps.fraction);
}

VOX_HOST_DEVICE float label_weight(const float (&corner)[8], const float (&fraction)[3], float label) {
  float is_label[8];
  for (int i = 0; i < 8; ++i) is_label[i] = corner[i] == label ? 1.0f : 0.0f;
  return mix_corners(is_label, fraction);
}

template <class T>
VOX_HOST_DEVICE float gather_label(const GatherSource<T>& source, float z, float y, float x) {
  const LinearTaps taps = taps_at(source, z, y, x);
  float corner[8];
  read_corners(source, taps, corner);
  float low = corner[0], high = corner[0];
  for (const float label : corner) {
    low = label < low ? label : low;
    high = label > high ? label : high;
  }
  bool two_labels = true;
  for (const float label : corner) two_labels = two_labels && (label == low || label == high);
  if (two_labels) return label_weight(corner, taps.fraction, high) > 0.5f ? high : low;
  float best_label = 0.0f, best_weight = -1.0f;
  for (const float label : corner) {
    const float weight = label_weight(corner, taps.fraction, label);
    if (weight < best_weight || (weight == best_weight && label >= best_label)) continue;
    best_label = label;
    best_weight = weight;
  }
  return best_label;
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
