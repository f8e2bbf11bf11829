#include "synth/smooth_field.h"

#include <cmath>

#include "base/random.h"

namespace vox {
namespace {

float smooth_step(double t) {
  return static_cast<float>(t * t * (3 - 2 * t));
}
float mix(float a, float b, float t) {
  return a + (b - a) * t;
}

}  // namespace

SmoothField::SmoothField(uint64_t seed, uint32_t stream, const Extent3& extent, double cell)
    : cell_(cell), width_(extent.x) {
  const auto points = [&](int64_t size) { return static_cast<int64_t>(static_cast<double>(size) / cell) + 2; };
  lattice_ = {points(extent.z), points(extent.y), points(extent.x)};
  values_.resize(static_cast<size_t>(lattice_.voxels()));
  const Random random(seed, 0, kSynthStream + stream);
  for (size_t i = 0; i < values_.size(); ++i)
    values_[i] = static_cast<float>(normal_from_bits(random.bits_at(static_cast<uint32_t>(i))));
}

void SmoothField::row(int64_t z, int64_t y, std::vector<float>& out) const {
  out.resize(static_cast<size_t>(width_));
  const double pz = static_cast<double>(z) / cell_, py = static_cast<double>(y) / cell_;
  const int64_t iz = static_cast<int64_t>(pz), iy = static_cast<int64_t>(py);
  const float tz = smooth_step(pz - static_cast<double>(iz)), ty = smooth_step(py - static_cast<double>(iy));
  const auto column = [&](int64_t ix) {
    const auto at = [&](int64_t a, int64_t b) {
      return values_[static_cast<size_t>(((iz + a) * lattice_.y + iy + b) * lattice_.x + ix)];
    };
    return mix(mix(at(0, 0), at(0, 1), ty), mix(at(1, 0), at(1, 1), ty), tz);
  };
  int64_t known = -1;
  float left = 0, right = 0;
  for (int64_t x = 0; x < width_; ++x) {
    const double px = static_cast<double>(x) / cell_;
    const int64_t ix = static_cast<int64_t>(px);
    if (ix != known) {
      left = column(ix);
      right = column(ix + 1);
      known = ix;
    }
    out[static_cast<size_t>(x)] = mix(left, right, smooth_step(px - static_cast<double>(ix)));
  }
}

}  // namespace vox
