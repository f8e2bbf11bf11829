// Blosc 1 frames over lz4, zstd and zlib, byte and bit shuffle, without c-blosc; where c-blosc was there at build time
// it serves the compressors that are not (blosclz). Errors say what is wrong with the bytes, the caller adds the place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vox {

struct ByteRange {
  int64_t begin = 0, end = 0;
};

// Unpacks into `out`, which has the size of the whole; only what `wanted` touches is sure to be there afterwards.
void blosc_decode(std::span<const std::byte> packed, std::span<std::byte> out, const ByteRange& wanted);

// lz4 with byte shuffle. At most 2^31 - 17 bytes.
std::vector<std::byte> blosc_encode(std::span<const std::byte> bytes, int64_t type_size);

// Transposes elements of `type_size` bytes: all first bytes, then all second bytes, ...; a rest stays as it is.
void shuffle_bytes(std::span<const std::byte> from, std::byte* to, int64_t type_size);
void unshuffle_bytes(std::span<const std::byte> from, std::byte* to, int64_t type_size);

}  // namespace vox
