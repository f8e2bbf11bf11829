#include "infer/windows.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace vox {
namespace {

std::vector<double> axis_weights(int64_t size, Blend blend) {
  std::vector<double> weights(static_cast<size_t>(size), 1.0);
  const double half = static_cast<double>(size) / 2, sigma = static_cast<double>(size) / 8;
  for (int64_t i = 0; i < size; ++i) {
    const double offset = static_cast<double>(i) + 0.5 - half, u = offset / half;
    double& weight = weights[static_cast<size_t>(i)];
    if (blend == Blend::kGaussian) weight = std::exp(-0.5 * offset * offset / (sigma * sigma));
    if (blend == Blend::kBump) weight = std::exp(1 - 1 / (1 - u * u));
  }
  return weights;
}

// In order; those that would lie wholly outside a volume of `size` are left out.
std::vector<int64_t> moved_both_ways(const std::vector<int64_t>& begins, int64_t shift, int64_t size, int64_t window) {
  std::vector<int64_t> moved;
  for (const int64_t begin : begins)
    for (const int64_t to : {begin - shift, begin + shift})
      if (to < size && to + window > 0) moved.push_back(to);
  std::sort(moved.begin(), moved.end());
  moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
  return moved;
}

}  // namespace

Blend blend_from_name(const std::string& name) {
  if (name == "constant") return Blend::kConstant;
  if (name == "bump") return Blend::kBump;
  VOX_CHECK(name == "gaussian", "inference.blend is \"", name, "\"; known: gaussian constant bump");
  return Blend::kGaussian;
}

std::vector<int64_t> axis_begins(int64_t size, int64_t window, double overlap) {
  if (size <= window) return {-((window - size) / 2)};
  const auto stride = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(window) * (1 - overlap)));
  std::vector<int64_t> begins;
  for (int64_t begin = 0; begin + window < size; begin += stride) begins.push_back(begin);
  begins.push_back(size - window);
  return begins;
}

std::vector<Extent3> WindowPlaces::layer(int64_t at_z) const {
  std::vector<Extent3> begins;
  begins.reserve(static_cast<size_t>(in_layer()));
  for (const int64_t at_y : y)
    for (const int64_t at_x : x) begins.push_back({at_z, at_y, at_x});
  return begins;
}

WindowPlaces window_places(const Extent3& volume, const Extent3& window, double overlap, const Box3& region,
                           const Extent3& shift) {
  VOX_CHECK(overlap >= 0 && overlap < 1, "the overlap of windows is ", overlap, "; it must be at least 0 and below 1");
  const auto unmoved = [&](int axis) {
    const int64_t room = volume[axis] - window[axis];
    if (room <= 0) return axis_begins(volume[axis], window[axis], overlap);
    std::vector<int64_t> begins = axis_begins(region.extent()[axis], window[axis], overlap);
    for (int64_t& begin : begins) begin = std::clamp<int64_t>(begin + region.begin[axis], 0, room);
    return begins;
  };
  const auto along = [&](int axis) {
    VOX_ASSERT(2 * shift[axis] <= window[axis]);  // window_options sees to it
    return moved_both_ways(unmoved(axis), shift[axis], volume[axis], window[axis]);
  };
  return {along(0), along(1), along(2)};
}

std::vector<Extent3> window_begins(const Extent3& volume, const Extent3& window, double overlap) {
  return window_begins(volume, window, overlap, whole(volume));
}

std::vector<Extent3> window_begins(const Extent3& volume, const Extent3& window, double overlap, const Box3& region,
                                   const Extent3& shift) {
  const WindowPlaces places = window_places(volume, window, overlap, region, shift);
  std::vector<Extent3> begins;
  for (const int64_t z : places.z)
    for (const Extent3& begin : places.layer(z)) begins.push_back(begin);
  return begins;
}

std::vector<float> blend_weights(const Extent3& window, Blend blend) {
  constexpr double kSmallest = 1e-3;  // so that a voxel seen by one window's corner alone is still divided safely
  const std::vector<double> z = axis_weights(window.z, blend), y = axis_weights(window.y, blend),
                            x = axis_weights(window.x, blend);
  std::vector<float> weights;
  weights.reserve(static_cast<size_t>(window.voxels()));
  for (const double at_z : z)
    for (const double at_y : y)
      for (const double at_x : x) weights.push_back(static_cast<float>(std::max(kSmallest, at_z * at_y * at_x)));
  return weights;
}

}  // namespace vox
