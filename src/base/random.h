// All chance in Voxloom: Philox4x32-10 (Salmon et al. 2011), a counter-based generator. A value is a pure function of
// (seed, sample, draw), so that nothing depends on threads, timing or history. Host and device give the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"

namespace vox {

struct Philox4 {
  uint32_t v[4];
};

VOX_HOST_DEVICE Philox4 philox(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Uniform on [0, 1), 24 bits: every value is exact in float32.
VOX_HOST_DEVICE float uniform_from_bits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// Standard normal by the inverse distribution function (Acklam's rational approximation, relative error 1.2e-9),
// from 32 bits; the two tails are mirrored so that the variate is odd in its bits.
VOX_HOST_DEVICE double normal_from_bits(uint32_t bits) {
  const double p = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  const double tail = p < 0.5 ? p : 1.0 - p;
  double x;
  if (tail < 0.02425) {
    const double q = std::sqrt(-2.0 * std::log(tail));
    x = (((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q - 2.400758277161838e+00) * q -
           2.549732539343734e+00) *
              q +
          4.374664141464968e+00) *
             q +
         2.938163982698783e+00) /
        ((((7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996e+00) * q +
          3.754408661907416e+00) *
             q +
         1.0);
    return p < 0.5 ? x : -x;
  }
  const double q = p - 0.5, r = q * q;
  x = (((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r - 2.759285104469687e+02) * r +
         1.383577518672690e+02) *
            r -
        3.066479806614716e+01) *
           r +
       2.506628277459239e+00) *
      q /
      (((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r - 1.556989798598866e+02) * r +
         6.680131188771972e+01) *
            r -
        1.328068155288572e+01) *
           r +
       1.0);
  return x;
}

// The draws of one sample, in order or by number. `stream` keeps users apart (sampler, each transform, dropout), so
// that adding a draw to one never shifts another's.
class Random {
 public:
  VOX_HOST_DEVICE Random(uint64_t seed, uint64_t sample, uint32_t stream)
      : seed_(seed), sample_(sample), stream_(stream) {}

  VOX_HOST_DEVICE uint32_t bits_at(uint32_t draw) const {
    return philox(seed_, sample_, (static_cast<uint64_t>(stream_) << 32) | (draw >> 2)).v[draw & 3];
  }
  VOX_HOST_DEVICE uint32_t bits() { return bits_at(draw_++); }
  VOX_HOST_DEVICE float uniform() { return uniform_from_bits(bits()); }
  VOX_HOST_DEVICE double uniform(double low, double high) {
    return low + (high - low) * ((static_cast<double>(bits()) + 0.5) * 0x1p-32);
  }
  VOX_HOST_DEVICE bool chance(double probability) { return static_cast<double>(bits()) * 0x1p-32 < probability; }
  VOX_HOST_DEVICE double normal() { return normal_from_bits(bits()); }
  // Uniform on 0 .. count-1 by the high half of a 96-bit product: bias below 2^-32 for counts up to 2^32.
  VOX_HOST_DEVICE int64_t below(int64_t count) {
    const uint64_t high = bits(), low = bits();
    const uint64_t random = (high << 32) | low;
    const uint64_t n = static_cast<uint64_t>(count);
    const uint64_t mid = (random >> 32) * n + (((random & 0xffffffffu) * n) >> 32);
    return static_cast<int64_t>(mid >> 32);
  }

 private:
  uint64_t seed_, sample_;
  uint32_t stream_;
  uint32_t draw_ = 0;
};

// Stream numbers, in one place so that no two users share one. Transforms take kTransforms + their place in the list.
enum RandomStream : uint32_t {
  kSplitStream = 1,
  kCaseStream,
  kPatchStream,
  kWeightStream,
  kDropoutStream = 64,
  kTransforms = 1024,
  kSynthStream = 1u << 20
};

}  // namespace vox
