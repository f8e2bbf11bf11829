#include "kernels/blur.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace vox {
namespace {

int64_t mirrored(int64_t i, int64_t size) {
  if (size == 1) return 0;
  const int64_t period = 2 * (size - 1);
  const int64_t folded = ((i % period) + period) % period;
  return folded < size ? folded : period - folded;
}

// out = sum of weights * (rows before + rows after), all rows `width` long.
void blend_rows(float* out, const float* const* rows, const std::vector<float>& kernel, int64_t width) {
  const int64_t radius = static_cast<int64_t>(kernel.size()) - 1;
  const float* centre = rows[radius];
  for (int64_t x = 0; x < width; ++x) out[x] = kernel[0] * centre[x];
  for (int64_t k = 1; k <= radius; ++k) {
    const float weight = kernel[static_cast<size_t>(k)];
    const float *before = rows[radius - k], *after = rows[radius + k];
    for (int64_t x = 0; x < width; ++x) out[x] += weight * (before[x] + after[x]);
  }
}

void blur_along_x(float* data, const Extent3& extent, const std::vector<float>& kernel) {
  const int64_t radius = static_cast<int64_t>(kernel.size()) - 1, width = extent.x;
  std::vector<float> padded(static_cast<size_t>(width + 2 * radius));
  std::vector<const float*> rows;
  for (int64_t k = 0; k <= 2 * radius; ++k) rows.push_back(padded.data() + k);
  for (int64_t row = 0; row < extent.z * extent.y; ++row) {
    float* out = data + row * width;
    for (int64_t k = 1; k <= radius; ++k) {
      padded[static_cast<size_t>(radius - k)] = out[mirrored(-k, width)];
      padded[static_cast<size_t>(radius + width - 1 + k)] = out[mirrored(width - 1 + k, width)];
    }
    std::copy(out, out + width, padded.begin() + radius);
    blend_rows(out, rows.data(), kernel, width);
  }
}

// `count` rows that lie `stride` apart, along an axis other than x; copied first, so that they fit into a cache.
void blur_rows(float* first, int64_t count, int64_t stride, int64_t width, const std::vector<float>& kernel,
               std::vector<float>& copy) {
  const int64_t radius = static_cast<int64_t>(kernel.size()) - 1;
  copy.resize(static_cast<size_t>(count * width));
  for (int64_t i = 0; i < count; ++i) std::copy_n(first + i * stride, width, copy.data() + i * width);
  std::vector<const float*> rows(static_cast<size_t>(2 * radius + 1));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = -radius; k <= radius; ++k)
      rows[static_cast<size_t>(k + radius)] = copy.data() + mirrored(i + k, count) * width;
    blend_rows(first + i * stride, rows.data(), kernel, width);
  }
}

}  // namespace

std::vector<float> gaussian_half_kernel(double sigma) {
  VOX_ASSERT(sigma >= 0);
  if (sigma == 0) return {1.0f};
  const int64_t radius = static_cast<int64_t>(std::floor((6 * sigma + 0.5 - 1) / 2 + 0.5));
  std::vector<double> weights;
  double sum = 0;
  for (int64_t k = 0; k <= radius; ++k) {
    const double distance = static_cast<double>(k) / sigma;
    weights.push_back(std::exp(-0.5 * distance * distance));
    sum += k == 0 ? weights.back() : 2 * weights.back();
  }
  std::vector<float> kernel;
  for (const double weight : weights) kernel.push_back(static_cast<float>(weight / sum));
  return kernel;
}

void symmetric_blur_cpu(float* data, const Extent3& extent, int axis, const std::vector<float>& half_kernel) {
  if (extent.voxels() == 0 || half_kernel.size() < 2) return;
  std::vector<float> copy;
  const int64_t slice = extent.y * extent.x;
  if (axis == 2) return blur_along_x(data, extent, half_kernel);
  if (axis == 1)
    for (int64_t z = 0; z < extent.z; ++z) blur_rows(data + z * slice, extent.y, extent.x, extent.x, half_kernel, copy);
  else
    for (int64_t y = 0; y < extent.y; ++y) blur_rows(data + y * extent.x, extent.z, slice, extent.x, half_kernel, copy);
}

void gaussian_blur_cpu(float* data, const Extent3& extent, const double (&sigma)[3]) {
  const int64_t slice = extent.y * extent.x;
  const std::vector<float> along_y = gaussian_half_kernel(sigma[1]), along_x = gaussian_half_kernel(sigma[2]);
  for (int64_t z = 0; z < extent.z; ++z) {  // slice by slice: both passes find it in the cache
    const Extent3 one{1, extent.y, extent.x};
    symmetric_blur_cpu(data + z * slice, one, 2, along_x);
    symmetric_blur_cpu(data + z * slice, one, 1, along_y);
  }
  symmetric_blur_cpu(data, extent, 0, gaussian_half_kernel(sigma[0]));
}

}  // namespace vox
