#include "volume/resample.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

namespace vox {
namespace {

struct Neighbours {  // of one output position along one axis
  int64_t low, high;
  float weight;  // of high
};

std::vector<Neighbours> neighbours_along(int64_t in, int64_t out, ResampleMethod method) {
  std::vector<Neighbours> all;
  for (int64_t o = 0; o < out; ++o) {
    const double centre = (static_cast<double>(o) + 0.5) * static_cast<double>(in) / static_cast<double>(out);
    if (method == ResampleMethod::kNearest) {
      const int64_t at = std::clamp<int64_t>(static_cast<int64_t>(std::floor(centre)), 0, in - 1);
      all.push_back({at, at, 0});
      continue;
    }
    const double at = std::clamp(centre - 0.5, 0.0, static_cast<double>(in - 1));
    const auto low = static_cast<int64_t>(std::floor(at));
    all.push_back({low, std::min(low + 1, in - 1), static_cast<float>(at - static_cast<double>(low))});
  }
  return all;
}

template <class T>
T stored(float value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(std::lrintf(value));  // between its neighbours, so always in range
  else
    return static_cast<T>(value);
}

// One output row: the four input rows around it weighted into one, then interpolated along x.
template <class T>
void linear_row(T* out, const T* const rows[4], float weight_z, float weight_y, const std::vector<Neighbours>& along_x,
                std::vector<float>& mixed) {
  const float w00 = (1 - weight_z) * (1 - weight_y), w01 = (1 - weight_z) * weight_y;
  const float w10 = weight_z * (1 - weight_y), w11 = weight_z * weight_y;
  for (size_t x = 0; x < mixed.size(); ++x)
    mixed[x] = w00 * static_cast<float>(rows[0][x]) + w01 * static_cast<float>(rows[1][x]) +
               w10 * static_cast<float>(rows[2][x]) + w11 * static_cast<float>(rows[3][x]);
  for (const Neighbours& n : along_x)
    *out++ =
        stored<T>(mixed[static_cast<size_t>(n.low)] * (1 - n.weight) + mixed[static_cast<size_t>(n.high)] * n.weight);
}

template <class T>
void resample_typed(const T* data, const Extent3& in, T* out, const Extent3& extent, ResampleMethod method) {
  const auto along_z = neighbours_along(in.z, extent.z, method);
  const auto along_y = neighbours_along(in.y, extent.y, method);
  const auto along_x = neighbours_along(in.x, extent.x, method);
  std::vector<float> mixed(static_cast<size_t>(in.x));
  const auto row = [&](int64_t z, int64_t y) { return data + (z * in.y + y) * in.x; };
  for (const Neighbours& z : along_z) {
    for (const Neighbours& y : along_y) {
      if (method == ResampleMethod::kNearest) {
        const T* source = row(z.low, y.low);
        for (const Neighbours& x : along_x) *out++ = source[x.low];
        continue;
      }
      const T* const rows[4] = {row(z.low, y.low), row(z.low, y.high), row(z.high, y.low), row(z.high, y.high)};
      linear_row(out, rows, z.weight, y.weight, along_x, mixed);
      out += extent.x;
    }
  }
}

}  // namespace

VolumeInfo resampled_info(const VolumeInfo& info, const Extent3& extent) {
  VolumeInfo result = info;
  result.extent = extent;
  for (int axis = 0; axis < 3; ++axis) {
    const double step = static_cast<double>(info.extent[axis]) / static_cast<double>(extent[axis]);
    if (result.spacing) (*result.spacing)[axis] *= step;
    if (!result.affine) continue;
    for (auto& row : *result.affine) {  // columns are x, y, z, the reverse of our axes
      double& column = row[static_cast<size_t>(2 - axis)];
      row[3] += column * (step / 2 - 0.5);
      column *= step;
    }
  }
  return result;
}

Volume resample(const Volume& volume, const Extent3& extent, ResampleMethod method) {
  Volume out = allocate_volume(resampled_info(volume.info, extent));
  with_type(volume.info.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (int64_t channel = 0; channel < volume.info.channels; ++channel)
      resample_typed(volume.as<T>() + channel * volume.info.extent.voxels(), volume.info.extent,
                     out.data.as<T>() + channel * extent.voxels(), extent, method);
  });
  return out;
}

}  // namespace vox
