// A row of a mask as bits, 64 voxels to a word, so that runs are found and neighbours compared a word at a time.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>

namespace vox {

inline int64_t words_for(int64_t bits) {
  return (bits + 63) / 64;
}

// Bit i of the result: in[i] is not zero. All 64 bytes are read.
inline uint64_t nonzero_bits(const uint8_t* in) {
  const __m256i zero = _mm256_setzero_si256();
  const auto zeros = [&](const uint8_t* half) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(half));
    return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, zero)));
  };
  return ~(zeros(in) | uint64_t{zeros(in + 32)} << 32);
}

// Bits beyond `count` in the last word are 0.
inline void pack_row(uint64_t* words, const uint8_t* row, int64_t count) {
  int64_t first = 0;
  for (; first + 64 <= count; first += 64) *words++ = nonzero_bits(row + first);
  if (first == count) return;
  uint64_t last = 0;
  for (int64_t i = first; i < count; ++i) last |= uint64_t{row[i] != 0} << (i - first);
  *words = last;
}

// The first place from `from` on where the bit is set (clear: `flip` all ones); `count` where there is none.
inline int64_t next_bit(const uint64_t* words, int64_t count, int64_t from, uint64_t flip = 0) {
  if (from >= count) return count;
  int64_t word = from / 64;
  uint64_t bits = (words[word] ^ flip) & (~uint64_t{0} << (from % 64));
  while (bits == 0) {
    if (++word * 64 >= count) return count;
    bits = words[word] ^ flip;
  }
  const int64_t found = word * 64 + std::countr_zero(bits);
  return found < count ? found : count;
}

// Calls run(begin, end) for each maximal run of set bits (of clear bits: `flip` all ones).
template <class Run>
void for_each_run(const uint64_t* words, int64_t count, uint64_t flip, Run&& run) {
  for (int64_t begin = next_bit(words, count, 0, flip); begin < count;) {
    const int64_t end = next_bit(words, count, begin, ~flip);
    run(begin, end);
    begin = next_bit(words, count, end, flip);
  }
}

}  // namespace vox
