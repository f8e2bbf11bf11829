#include "base/hash.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace vox {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  uint64_t crc = ~seed;
  const std::byte* data = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, data += 8) {  // SSE 4.2 is part of the x86-64-v3 baseline
    uint64_t word;
    std::memcpy(&word, data, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  uint32_t narrow = static_cast<uint32_t>(crc);
  for (; left > 0; --left, ++data) narrow = _mm_crc32_u8(narrow, static_cast<uint8_t>(*data));
  return ~narrow;
}

ContentHash& ContentHash::add(std::span<const std::byte> bytes) {
  const std::byte* data = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    state_ = (state_ ^ word) * 0x100000001b3ull;
    state_ ^= state_ >> 29;
  }
  for (; left > 0; --left, ++data) state_ = (state_ ^ static_cast<uint8_t>(*data)) * 0x100000001b3ull;
  return *this;
}

ContentHash& ContentHash::add(const std::string& text) {
  return add(static_cast<uint64_t>(text.size())).add(std::as_bytes(std::span(text)));
}

ContentHash& ContentHash::add(uint64_t value) {
  return add(std::as_bytes(std::span(&value, 1)));
}

uint64_t ContentHash::value() const {
  uint64_t x = state_ + 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::string ContentHash::hex() const {
  std::array<char, 17> text{};
  uint64_t rest = value();
  for (int i = 15; i >= 0; --i, rest >>= 4) text[static_cast<size_t>(i)] = "0123456789abcdef"[rest & 15];
  return text.data();
}

}  // namespace vox
