// Rows of soft morphology: the extreme of neighbouring rows, one output row at a time, so that what follows can use it
// while it is at hand.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/shape.h"

namespace vox {

struct Least {
  template <class T>
  static T of(T a, T b) {
    return b < a ? b : a;
  }
  template <class T>
  static bool better(T a, T b) {
    return a < b;
  }
  template <class T>
  static T worst() {
    return std::numeric_limits<T>::infinity();
  }
};
struct Largest {
  template <class T>
  static T of(T a, T b) {
    return a < b ? b : a;
  }
  template <class T>
  static bool better(T a, T b) {
    return a > b;
  }
  template <class T>
  static T worst() {
    return -std::numeric_limits<T>::infinity();
  }
};

template <class Extreme, class T>
void extreme_of_three(T* out, const T* a, const T* b, const T* c, int64_t count) {
  for (int64_t x = 0; x < count; ++x) out[x] = Extreme::of(Extreme::of(a[x], b[x]), c[x]);
}
// Along the row.
template <class Extreme, class T>
void extreme_along(T* out, const T* in, int64_t count) {
  if (count == 1) {
    out[0] = in[0];
    return;
  }
  out[0] = Extreme::of(in[0], in[1]);
  for (int64_t x = 1; x + 1 < count; ++x) out[x] = Extreme::of(Extreme::of(in[x - 1], in[x]), in[x + 1]);
  out[count - 1] = Extreme::of(in[count - 2], in[count - 1]);
}

// Rows around row y of slice z; where there is none, the nearest one that there is, which changes no extreme.
template <class T>
const T* row_near(const T* volume, const Extent3& extent, int64_t z, int64_t y) {
  z = std::clamp<int64_t>(z, 0, extent.z - 1);
  y = std::clamp<int64_t>(y, 0, extent.y - 1);
  return volume + (z * extent.y + y) * extent.x;
}

// Calls visit(y, row) with the extremes of 3x3x3 voxels around each row of a slice: along z, then y, then x.
template <class Extreme, class T, class Visit>
void for_each_cube_row(const T* volume, const Extent3& extent, int64_t z, Visit visit) {
  const int64_t width = extent.x;
  std::vector<T> buffer(static_cast<size_t>(5 * width));
  const auto along_z = [&](int64_t y) { return buffer.data() + (y % 3) * width; };
  const auto fill = [&](int64_t y) {
    extreme_of_three<Extreme>(along_z(y), row_near(volume, extent, z - 1, y), row_near(volume, extent, z, y),
                              row_near(volume, extent, z + 1, y), width);
  };
  T *across = buffer.data() + 3 * width, *out = across + width;
  fill(0);
  for (int64_t y = 0; y < extent.y; ++y) {
    if (y + 1 < extent.y) fill(y + 1);
    extreme_of_three<Extreme>(across, along_z(std::max<int64_t>(y - 1, 0)), along_z(y),
                              along_z(std::min(y + 1, extent.y - 1)), width);
    extreme_along<Extreme>(out, across, width);
    visit(y, out);
  }
}

}  // namespace vox
