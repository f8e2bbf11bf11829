// All chance in Voxloom: Philox4x32-10 (Salmon et al. 2011), a counter-based generator. A value is a pure function of
// (seed, sample, draw), so that nothing depends on threads, timing or history. Host and device give the same bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

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

template <int kCount>
struct Polynomial {
  float coefficient[kCount];  // highest power first
};

template <int kCount>
VOX_HOST_DEVICE float evaluate(const Polynomial<kCount>& polynomial, float x) {
  float sum = polynomial.coefficient[0];
  for (int i = 1; i < kCount; ++i) sum = std::fma(sum, x, polynomial.coefficient[i]);
  return sum;
}

// The polynomials of normal_from_bits: minimax fits to its exact function, relative error 5e-8. Functions, because
// device code cannot read a constant array of the host.
struct NormalFit {
  VOX_HOST_DEVICE static Polynomial<9> log() {  // log(1 + f) / f
    return {{0.0872265026f, -0.14366959f, 0.149522081f, -0.165623724f, 0.199568376f, -0.250020742f, 0.333341867f,
             -0.499999881f, 1.0f}};
  }
  VOX_HOST_DEVICE static Polynomial<10> centre() {  // in w - kCentreShift
    return {{-8.24034618e-09f, -6.13081452e-09f, 6.44291674e-07f, -2.66625807e-06f, -1.80414481e-05f, 0.000276445237f,
             -0.00118238362f, -0.00811557844f, 0.341716886f, 2.29603529f}};
  }
  VOX_HOST_DEVICE static Polynomial<10> tail() {  // in sqrt(w) - kTailShift
    return {{2.7069218e-05f, 4.03002196e-05f, -0.000355270429f, 0.000685637642f, -0.000942229002f, 0.00151365693f,
             -0.00292245764f, 0.00463902717f, 1.42463505f, 4.71708918f}};
  }
  static constexpr float kTailBegins = 6.0f, kCentreShift = 3.0f, kTailShift = 3.5f, kLog2 = 0.693147182f;
};

// Natural logarithm of a positive normal number: exponent and mantissa in [sqrt(1/2), sqrt(2)).
VOX_HOST_DEVICE float log_from_parts(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  bits -= static_cast<uint32_t>(exponent) << 23;
  float mantissa;
  std::memcpy(&mantissa, &bits, sizeof mantissa);
  const float f = mantissa - 1.0f;
  return std::fma(static_cast<float>(exponent), NormalFit::kLog2, f * evaluate(NormalFit::log(), f));
}

// Standard normal from 32 bits by the inverse distribution function, relative error below 5e-7, in float32 and without
// the mathematics library, whose logarithms differ between machines. With p = (bits + 1/2) / 2^32 and x = 2p - 1, the
// variate over x is a smooth function of w = -log(1 - x^2): a polynomial in w, and in sqrt(w) for the tails (the form
// of Giles 2010). Exactly odd: bits and ~bits give opposite values.
VOX_HOST_DEVICE float normal_from_bits(uint32_t bits) {
  const bool positive = (bits >> 31) != 0;
  const uint32_t from_middle = (positive ? bits : ~bits) & 0x7fffffffu;
  const float x = std::fma(static_cast<float>(static_cast<int32_t>(from_middle)), 0x1p-31f, 0x1p-32f);
  const float tail = std::fma(static_cast<float>(static_cast<int32_t>(from_middle ^ 0x7fffffffu)), 0x1p-32f, 0x1p-33f);
  const float w = -log_from_parts(4.0f * tail * (1.0f - tail));
  const float ratio = w < NormalFit::kTailBegins ? evaluate(NormalFit::centre(), w - NormalFit::kCentreShift)
                                                 : evaluate(NormalFit::tail(), std::sqrt(w) - NormalFit::kTailShift);
  return positive ? ratio * x : -(ratio * x);
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
  VOX_HOST_DEVICE double normal() { return static_cast<double>(normal_from_bits(bits())); }
  // A second stream of this user, for a value per voxel: apart from its parameters, by number, on any thread.
  VOX_HOST_DEVICE Random per_voxel() const { return Random(seed_, sample_, stream_ | 0x80000000u); }
  VOX_HOST_DEVICE uint64_t seed() const { return seed_; }
  VOX_HOST_DEVICE uint64_t sample() const { return sample_; }
  VOX_HOST_DEVICE uint32_t stream() const { return stream_; }
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
