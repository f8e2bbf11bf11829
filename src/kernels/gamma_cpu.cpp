#include "kernels/gamma.h"

#include <immintrin.h>

#include <algorithm>

#include "base/random.h"
#include "kernels/moments.h"

namespace vox {
namespace {

template <int kCount>
__m256 evaluate_lanes(const Polynomial<kCount>& polynomial, __m256 x) {
  __m256 sum = _mm256_set1_ps(polynomial.coefficient[0]);
  for (int i = 1; i < kCount; ++i) sum = _mm256_fmadd_ps(sum, x, _mm256_set1_ps(polynomial.coefficient[i]));
  return sum;
}

struct Log {  // whole * log 2 + rest
  __m256 whole, rest;
};

Log log_lanes(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i exponent = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f3504f3)), 23);
  const __m256 mantissa = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(exponent, 23)));
  const __m256 f = _mm256_sub_ps(mantissa, _mm256_set1_ps(1.0f));
  return {_mm256_cvtepi32_ps(exponent), _mm256_mul_ps(f, evaluate_lanes(NormalFit::log(), f))};
}

// 2^whole * e^rest with |rest| below 0.4: Taylor's terms up to the seventh are enough for float32.
__m256 exponential_lanes(__m256 whole, __m256 rest) {
  constexpr Polynomial<8> kTaylor{{1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1.0f, 1.0f}};
  const __m256 mantissa = evaluate_lanes(kTaylor, rest);
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(mantissa), exponent));
}

// x^e = 2^(e * log2 x): the whole part of e * exponent stays apart, so that its rounding does not grow with it.
__m256 power_lanes(__m256 base, __m256 exponent) {
  const __m256 least = _mm256_set1_ps(1e-30f);
  const Log log = log_lanes(_mm256_max_ps(base, least));
  const __m256 doublings = _mm256_mul_ps(exponent, log.whole);
  __m256 whole = _mm256_round_ps(doublings, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 rest = _mm256_mul_ps(_mm256_fmsub_ps(exponent, log.whole, whole), _mm256_set1_ps(NormalFit::kLog2));
  rest = _mm256_fmadd_ps(exponent, log.rest, rest);
  const __m256 more = _mm256_round_ps(_mm256_mul_ps(rest, _mm256_set1_ps(1.0f / NormalFit::kLog2)),
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  rest = _mm256_fnmadd_ps(more, _mm256_set1_ps(NormalFit::kLog2), rest);
  whole = _mm256_max_ps(_mm256_add_ps(whole, more), _mm256_set1_ps(-120.0f));
  const __m256 is_zero = _mm256_cmp_ps(base, least, _CMP_LT_OQ);
  return _mm256_andnot_ps(is_zero, exponential_lanes(whole, rest));
}

// out = apply(in), in whole groups of eight with a padded last one.
template <class Apply>
void for_groups(float* out, const float* in, int64_t count, const Apply& apply) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(out + i, apply(_mm256_loadu_ps(in + i)));
  if (i == count) return;
  alignas(32) float last[8] = {};
  std::copy(in + i, in + count, last);
  _mm256_store_ps(last, apply(_mm256_load_ps(last)));
  std::copy(last, last + (count - i), out + i);
}

void restore(float* data, int64_t count, const PatchMoments& before) {
  double mean, deviation;
  mean_and_deviation_cpu(data, count, &mean, &deviation);
  const double factor = before.deviation / std::max(deviation, 1e-7);
  const float scale = static_cast<float>(factor), offset = static_cast<float>(before.mean - mean * factor);
  for (int64_t i = 0; i < count; ++i) data[i] = data[i] * scale + offset;
}

}  // namespace

void power_cpu(float* out, const float* base, int64_t count, float exponent) {
  const __m256 e = _mm256_set1_ps(exponent);
  for_groups(out, base, count, [&](__m256 value) { return power_lanes(value, e); });
}

void gamma_cpu(float* data, int64_t count, const GammaCurve& curve) {
  const PatchMoments before = moments_cpu(data, count);
  const float range = before.high - before.low;
  if (!(range > 1e-7f)) return;
  // Inverted, the range runs from -high to -low: (high - x) / range, and back.
  const float from = curve.inverted ? before.high : before.low, sign = curve.inverted ? -1.0f : 1.0f;
  const __m256 e = _mm256_set1_ps(curve.exponent), start = _mm256_set1_ps(from);
  const __m256 to_unit = _mm256_set1_ps(sign / range), back = _mm256_set1_ps(sign * range);
  const __m256 zero = _mm256_setzero_ps(), one = _mm256_set1_ps(1.0f);
  for_groups(data, data, count, [&](__m256 value) {
    const __m256 unit = _mm256_min_ps(_mm256_max_ps(_mm256_mul_ps(_mm256_sub_ps(value, start), to_unit), zero), one);
    return _mm256_fmadd_ps(power_lanes(unit, e), back, start);
  });
  if (curve.keep_moments) restore(data, count, before);
}

}  // namespace vox
