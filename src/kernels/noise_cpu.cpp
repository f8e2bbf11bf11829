// Eight Philox counters at once give 32 draws; the variates are computed as normal_from_bits defines them, to the bit.
#include "kernels/noise.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace vox {
namespace {

struct Product {
  __m256i low, high;
};

Product multiply(__m256i a, uint32_t factor) {  // 32 x 32 -> 64 bits, lane by lane
  const __m256i b = _mm256_set1_epi64x(factor);
  const __m256i even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  return {_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa),
          _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa)};
}

__m256i set(uint64_t word) {  // its low half in every lane
  return _mm256_set1_epi32(static_cast<int32_t>(static_cast<uint32_t>(word)));
}

// v[k], lane l: output k of counter block + l. As philox().
struct PhiloxLanes {
  __m256i v[4];
};
PhiloxLanes philox_lanes(const Random& random, uint32_t block) {
  __m256i c0 = _mm256_add_epi32(set(block), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), c1 = set(random.stream());
  __m256i c2 = set(random.sample()), c3 = set(random.sample() >> 32);
  uint32_t k0 = static_cast<uint32_t>(random.seed()), k1 = static_cast<uint32_t>(random.seed() >> 32);
  for (int round = 0; round < 10; ++round) {
    const Product p0 = multiply(c0, 0xD2511F53u), p1 = multiply(c2, 0xCD9E8D57u);
    c0 = _mm256_xor_si256(_mm256_xor_si256(p1.high, c1), set(k0));
    c2 = _mm256_xor_si256(_mm256_xor_si256(p0.high, c3), set(k1));
    c1 = p1.low;
    c3 = p0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

template <int kCount>
__m256 evaluate_lanes(const Polynomial<kCount>& polynomial, __m256 x) {
  __m256 sum = _mm256_set1_ps(polynomial.coefficient[0]);
  for (int i = 1; i < kCount; ++i) sum = _mm256_fmadd_ps(sum, x, _mm256_set1_ps(polynomial.coefficient[i]));
  return sum;
}

__m256 log_lanes(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i exponent = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f3504f3)), 23);
  const __m256 mantissa = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(exponent, 23)));
  const __m256 f = _mm256_sub_ps(mantissa, _mm256_set1_ps(1.0f));
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(exponent), _mm256_set1_ps(NormalFit::kLog2),
                         _mm256_mul_ps(f, evaluate_lanes(NormalFit::log(), f)));
}

__m256 normal_lanes(__m256i bits) {
  const __m256i low_half = _mm256_set1_epi32(0x7fffffff);
  const __m256i negative = _mm256_xor_si256(_mm256_srai_epi32(bits, 31), _mm256_set1_epi32(-1));
  const __m256i from_middle = _mm256_and_si256(_mm256_xor_si256(bits, negative), low_half);
  const __m256 x = _mm256_fmadd_ps(_mm256_cvtepi32_ps(from_middle), _mm256_set1_ps(0x1p-31f), _mm256_set1_ps(0x1p-32f));
  const __m256 tail = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_xor_si256(from_middle, low_half)),
                                      _mm256_set1_ps(0x1p-32f), _mm256_set1_ps(0x1p-33f));
  const __m256 sign_bit = _mm256_set1_ps(-0.0f);
  const __m256 product =
      _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(4.0f), tail), _mm256_sub_ps(_mm256_set1_ps(1.0f), tail));
  const __m256 w = _mm256_xor_ps(log_lanes(product), sign_bit);
  __m256 ratio = evaluate_lanes(NormalFit::centre(), _mm256_sub_ps(w, _mm256_set1_ps(NormalFit::kCentreShift)));
  const __m256 in_centre = _mm256_cmp_ps(w, _mm256_set1_ps(NormalFit::kTailBegins), _CMP_LT_OQ);
  if (_mm256_movemask_ps(in_centre) != 0xff) {
    const __m256 root = _mm256_sub_ps(_mm256_sqrt_ps(w), _mm256_set1_ps(NormalFit::kTailShift));
    ratio = _mm256_blendv_ps(evaluate_lanes(NormalFit::tail(), root), ratio, in_centre);
  }
  const __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(negative), sign_bit);
  return _mm256_xor_ps(_mm256_mul_ps(ratio, x), sign);
}

// 32 consecutive draws: transposes the four outputs of eight counters into draw order.
void normals_of(const Random& random, uint32_t block, float* out) {
  const PhiloxLanes lanes = philox_lanes(random, block);
  alignas(32) float by_output[4][8];
  for (int k = 0; k < 4; ++k) _mm256_store_ps(by_output[k], normal_lanes(lanes.v[k]));
  for (int counter = 0; counter < 8; ++counter)
    for (int k = 0; k < 4; ++k) out[4 * counter + k] = by_output[k][counter];
}

}  // namespace

void add_noise_cpu(float* data, int64_t count, float sigma, const Random& random, int64_t first) {
  VOX_ASSERT(first >= 0 && first + count <= (int64_t{1} << 32));
  alignas(32) float normals[32];
  for (int64_t i = 0; i < count;) {
    const int64_t draw = first + i, skipped = draw % 4;
    const int64_t filled = std::min<int64_t>(32 - skipped, count - i);
    normals_of(random, static_cast<uint32_t>(draw / 4), normals);
    for (int64_t j = 0; j < filled; ++j) data[i + j] = std::fma(sigma, normals[skipped + j], data[i + j]);
    i += filled;
  }
}

}  // namespace vox
