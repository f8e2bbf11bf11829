// Gamma of a patch on its own range.
#pragma once

#include <cstdint>

namespace vox {

// data = low + range * ((data - low) / range)^exponent, with low and range those of the patch before; `inverted` does
// so on the negative of the image. `keep_moments` then restores mean and deviation. A constant patch stays.
struct GammaCurve {
  float exponent = 1;
  bool inverted = false;
  bool keep_moments = false;
};
void gamma_cpu(float* data, int64_t count, const GammaCurve& curve);

// base^exponent for bases in 0 .. 1, relative error below 2e-6 for exponents up to 8; without the mathematics library,
// so that all machines agree. out may be base.
void power_cpu(float* out, const float* base, int64_t count, float exponent);

}  // namespace vox
