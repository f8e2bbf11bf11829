// Checksums and content keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace vox {

// CRC-32C (Castagnoli), as TensorBoard records and our checkpoints use it. `seed` continues an earlier part.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed = 0);

// 64-bit content key (FNV-1a over bytes, finished by splitmix64): names cache entries, is no protection from malice.
class ContentHash {
 public:
  ContentHash& add(std::span<const std::byte> bytes);
  ContentHash& add(const std::string& text);  // with its length, so that ("ab","c") differs from ("a","bc")
  ContentHash& add(uint64_t value);
  uint64_t value() const;
  std::string hex() const;  // 16 digits

 private:
  uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace vox
