// For 3x3x3 the median comes from forgetful selection (Paeth 1990) on whole rows: of 15 values the smallest and the
// largest cannot be the median of 27, so both go, the next value comes in, and so on. Every comparison is a minimum and
// a maximum of two vectors, without branches.
#include "volume/median.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace vox {
namespace {

int64_t mirrored(int64_t at, int64_t extent) {
  const int64_t period = 2 * extent;
  at = ((at % period) + period) % period;
  return at < extent ? at : period - 1 - at;
}

constexpr int64_t kLanes = 64;  // voxels handled at once

template <class T>
struct alignas(64) Lanes {
  T v[kLanes];
};

template <class T>
void order(Lanes<T>& a, Lanes<T>& b) {
  for (int64_t i = 0; i < kLanes; ++i) {
    const T low = std::min(a.v[i], b.v[i]), high = std::max(a.v[i], b.v[i]);
    a.v[i] = low, b.v[i] = high;
  }
}

// Puts the smallest of values[begin .. end) first and the largest last.
template <class T>
void extremes_outward(Lanes<T>* values, int begin, int end) {
  for (int i = begin, j = end - 1; i < j; ++i, --j) order(values[i], values[j]);
  const int half = (end - begin + 1) / 2;
  for (int i = begin + 1; i < begin + half; ++i) order(values[begin], values[i]);
  for (int i = end - half; i < end - 1; ++i) order(values[i], values[end - 1]);
}

template <class T>
void median_of_27(Lanes<T>* values) {  // the result ends up in values[13]
  // values[begin .. 15) are candidates; 15 .. 26 wait. A dropped maximum's place takes the next one.
  int begin = 0;
  for (int next = 15; next < 27; ++next) {
    extremes_outward(values, begin, 15);
    ++begin;
    values[14] = values[next];
  }
  extremes_outward(values, begin, 15);  // three are left: 12, 13, 14
}

// Rows around (z, y), each with one mirrored voxel at both ends.
template <class T>
void padded_rows(const T* data, const Extent3& extent, int64_t z, int64_t y, std::vector<T>& rows) {
  const int64_t width = extent.x + 2 + kLanes;
  for (int64_t n = 0; n < 9; ++n) {
    const int64_t zz = mirrored(z + n / 3 - 1, extent.z), yy = mirrored(y + n % 3 - 1, extent.y);
    const T* source = data + (zz * extent.y + yy) * extent.x;
    T* row = rows.data() + n * width;
    std::copy(source, source + extent.x, row + 1);
    row[0] = source[mirrored(-1, extent.x)];
    row[extent.x + 1] = source[mirrored(extent.x, extent.x)];
  }
}

template <class T>
void median_3(const T* data, T* out, const Extent3& extent) {
  const int64_t width = extent.x + 2 + kLanes;  // lanes past the end hold anything: nothing of them is kept
  std::vector<T> rows(static_cast<size_t>(9 * width), T{});
  Lanes<T> values[27];
  for (int64_t z = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      padded_rows(data, extent, z, y, rows);
      for (int64_t x = 0; x < extent.x; x += kLanes) {
        for (int64_t n = 0; n < 27; ++n) {
          const T* from = rows.data() + (n / 3) * width + x + n % 3;
          std::copy(from, from + kLanes, values[n].v);
        }
        median_of_27(values);
        const int64_t kept = std::min(kLanes, extent.x - x);
        std::copy(values[13].v, values[13].v + kept, out + (z * extent.y + y) * extent.x + x);
      }
    }
  }
}

template <class T>
void median_any(const T* data, T* out, const Extent3& extent, int64_t size) {
  const int64_t radius = size / 2;
  std::vector<T> cube(static_cast<size_t>(size * size * size));
  for (int64_t i = 0; i < extent.voxels(); ++i) {
    const int64_t z = i / (extent.y * extent.x), y = i / extent.x % extent.y, x = i % extent.x;
    auto place = cube.begin();
    for (int64_t dz = -radius; dz <= radius; ++dz)
      for (int64_t dy = -radius; dy <= radius; ++dy)
        for (int64_t dx = -radius; dx <= radius; ++dx)
          *place++ = data[(mirrored(z + dz, extent.z) * extent.y + mirrored(y + dy, extent.y)) * extent.x +
                          mirrored(x + dx, extent.x)];
    const auto middle = cube.begin() + static_cast<std::ptrdiff_t>(cube.size() / 2);
    std::nth_element(cube.begin(), middle, cube.end());
    out[i] = *middle;
  }
}

}  // namespace

Volume median_filter(const Volume& volume, int64_t size) {
  VOX_ASSERT(size % 2 == 1 && volume.info.channels == 1);
  Volume out = allocate_volume(volume.info);
  with_type(volume.info.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (size == 3)
      median_3(volume.as<T>(), out.data.as<T>(), volume.info.extent);
    else
      median_any(volume.as<T>(), out.data.as<T>(), volume.info.extent, size);
  });
  return out;
}

}  // namespace vox
