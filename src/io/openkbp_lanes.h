// Four lines of a sparse CSV at once, in the 64-bit lanes of a register: numbers whose text ends where the lane does.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

namespace vox {

static_assert(std::endian::native == std::endian::little);

inline uint64_t load8(const char* text) {
  uint64_t word;
  std::memcpy(&word, text, sizeof(word));
  return word;
}

inline __m256i load_lanes(const char* a, const char* b, const char* c, const char* d) {
  const auto lane = [](const char* text) { return static_cast<int64_t>(load8(text)); };
  return _mm256_set_epi64x(lane(d), lane(c), lane(b), lane(a));
}

inline bool all_set(__m256i mask) {
  return _mm256_movemask_epi8(mask) == -1;
}

inline bool all_between(__m128i values, int low, int high) {  // 32-bit lanes
  const __m128i above = _mm_sub_epi32(values, _mm_set1_epi32(low));
  const __m128i clipped = _mm_min_epu32(above, _mm_set1_epi32(high - low));
  return _mm_movemask_epi8(_mm_cmpeq_epi32(above, clipped)) == 0xffff;
}

inline __m256i last_bytes(__m128i counts) {  // a mask of the last `count` bytes of each lane; 1 to 8
  const __m256i bits = _mm256_slli_epi64(_mm256_cvtepu32_epi64(counts), 3);
  return _mm256_sllv_epi64(_mm256_set1_epi64x(-1), _mm256_sub_epi64(_mm256_set1_epi64x(64), bits));
}

// The number that the bytes under `kept` (the last of each lane) spell, first digit first; false where one is no digit.
inline bool digits_of(__m256i text, __m256i kept, __m128i* numbers) {
  const __m256i digits = _mm256_and_si256(_mm256_xor_si256(text, _mm256_set1_epi8('0')), kept);
  const __m256i nine = _mm256_set1_epi8(9);
  if (!all_set(_mm256_cmpeq_epi8(_mm256_max_epu8(digits, nine), nine))) return false;
  const __m256i pairs = _mm256_maddubs_epi16(digits, _mm256_set1_epi16(0x010a));  // 10 * first + second
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x00010064));  // 100 * first + second
  const __m256i eights =
      _mm256_add_epi64(_mm256_mul_epu32(fours, _mm256_set1_epi64x(10000)), _mm256_srli_epi64(fours, 32));
  *numbers = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(eights, _mm256_set_epi32(0, 0, 0, 0, 6, 4, 2, 0)));
  return true;
}

// "1013.0" in each lane, with `lengths` characters; false where one is written otherwise or has no 16 bits.
inline bool whole_numbers(__m256i text, __m128i lengths, __m128i* numbers) {
  const __m256i point_zero = _mm256_cmpeq_epi64(_mm256_srli_epi64(text, 48), _mm256_set1_epi64x(0x302e));
  if (!all_between(lengths, 3, 8) || !all_set(point_zero)) return false;
  const __m256i kept = last_bytes(_mm_sub_epi32(lengths, _mm_set1_epi32(2)));
  if (!digits_of(_mm256_slli_epi64(text, 16), kept, numbers)) return false;
  return _mm_movemask_epi8(_mm_cmpgt_epi32(*numbers, _mm_set1_epi32(INT16_MAX))) == 0;
}

// "12.345" in each lane: its digits without the point, and how many of them stand behind it.
inline bool decimal_numbers(__m256i text, __m128i lengths, __m128i* numbers, int (&decimals)[4]) {
  if (!all_between(lengths, 2, 8)) return false;
  const __m256i kept = last_bytes(lengths), known = _mm256_and_si256(text, kept);
  const __m256i point = _mm256_cmpeq_epi8(known, _mm256_set1_epi8('.'));
  const uint32_t places = static_cast<uint32_t>(_mm256_movemask_epi8(point));
  for (int lane = 0; lane < 4; ++lane) {
    const uint32_t place = places >> (8 * lane) & 0xff;
    if (place == 0) return false;
    decimals[lane] = 7 - std::countr_zero(place);
  }
  const __m256i lowest = _mm256_and_si256(point, _mm256_sub_epi64(_mm256_setzero_si256(), point));
  const __m256i before = _mm256_add_epi64(lowest, _mm256_set1_epi64x(-1));
  const __m256i after = _mm256_andnot_si256(_mm256_or_si256(before, point), known);
  const __m256i joined = _mm256_or_si256(_mm256_slli_epi64(_mm256_and_si256(known, before), 8), after);
  return digits_of(joined, _mm256_slli_epi64(kept, 8), numbers);
}

}  // namespace vox
