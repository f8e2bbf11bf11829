#include "metrics/surface_distance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/edt.h"

namespace vox {
namespace {

// 0 on the surface and 1 elsewhere: the mask whose distance transform is the distance to the surface.
struct Surface {
  std::vector<uint8_t> elsewhere;
  std::vector<int64_t> voxels;
};

Surface surface_of(const uint8_t* mask, const Extent3& extent) {
  Surface surface;
  surface.elsewhere.assign(static_cast<size_t>(extent.voxels()), 1);
  const int64_t row = extent.x, slice = extent.y * extent.x;
  for (int64_t z = 0, i = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      for (int64_t x = 0; x < extent.x; ++x, ++i) {
        if (mask[i] == 0) continue;
        const bool inside = z > 0 && z + 1 < extent.z && y > 0 && y + 1 < extent.y && x > 0 && x + 1 < extent.x &&
                            mask[i - 1] && mask[i + 1] && mask[i - row] && mask[i + row] && mask[i - slice] &&
                            mask[i + slice];
        if (inside) continue;
        surface.elsewhere[static_cast<size_t>(i)] = 0;
        surface.voxels.push_back(i);
      }
    }
  }
  return surface;
}

std::vector<double> distances(const Surface& from, const Surface& to, const Extent3& extent, const Spacing3& spacing,
                              ThreadPool& pool) {
  std::vector<float> squared(to.elsewhere.size());
  edt_squared_cpu(squared.data(), to.elsewhere.data(), extent, {.spacing = spacing}, &pool);
  std::vector<double> found;
  found.reserve(from.voxels.size());
  for (const int64_t voxel : from.voxels)
    found.push_back(std::sqrt(static_cast<double>(squared[static_cast<size_t>(voxel)])));
  return found;
}

double percentile_95(std::vector<double>& values) {
  const double place = 0.95 * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(place);
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(below), values.end());
  const double low = values[below];
  if (below + 1 == values.size()) return low;
  const double high = *std::min_element(values.begin() + static_cast<int64_t>(below) + 1, values.end());
  return low + (high - low) * (place - static_cast<double>(below));
}

}  // namespace

double diagonal_mm(const Extent3& extent, const Spacing3& spacing) {
  double sum = 0;
  for (int axis = 0; axis < 3; ++axis) sum += std::pow(static_cast<double>(extent[axis]) * spacing[axis], 2);
  return std::sqrt(sum);
}

SurfaceDistances surface_distances(const uint8_t* a, const uint8_t* b, const Extent3& extent, const Spacing3& spacing,
                                   ThreadPool& pool) {
  const Surface of_a = surface_of(a, extent), of_b = surface_of(b, extent);
  if (of_a.voxels.empty() && of_b.voxels.empty()) return {};
  if (of_a.voxels.empty() || of_b.voxels.empty()) return {diagonal_mm(extent, spacing), diagonal_mm(extent, spacing)};
  std::vector<double> a_to_b = distances(of_a, of_b, extent, spacing, pool);
  std::vector<double> b_to_a = distances(of_b, of_a, extent, spacing, pool);
  double sum = 0;
  for (const double distance : a_to_b) sum += distance;
  for (const double distance : b_to_a) sum += distance;
  return {.hd95 = std::max(percentile_95(a_to_b), percentile_95(b_to_a)),
          .asd = sum / static_cast<double>(a_to_b.size() + b_to_a.size())};
}

}  // namespace vox
