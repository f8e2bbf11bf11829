#include "io/zarr_codec.h"

#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "io/codec.h"
#include "io/inflate.h"
#include "io/lz4_block.h"

namespace vox::zarr {
namespace {

using Bytes = std::span<const std::byte>;

uint32_t load_uint32(Bytes bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + at, 4);
  return value;
}

Bytes without_checksum(Bytes packed) {
  VOX_CHECK(packed.size() >= 4, "its checksum is missing");
  const Bytes content = packed.first(packed.size() - 4);
  VOX_CHECK(crc32c(content) == load_uint32(packed, content.size()), "its checksum is wrong; the data is damaged");
  return content;
}

// numcodecs puts the unpacked size before the block.
void decode_sized_lz4(Bytes packed, std::span<std::byte> out) {
  VOX_CHECK(packed.size() >= 4 && load_uint32(packed, 0) == out.size(),
            "the lz4 data does not begin with the size of a chunk, ", out.size());
  lz4_decode(packed.subspan(4), out);
}

}  // namespace

void decode_chunk(const ChunkCodec& codec, Bytes packed, std::span<std::byte> out, const ByteRange& wanted) {
  if (codec.crc32c) packed = without_checksum(packed);
  switch (codec.compressor) {
    case Compressor::kNone:
      VOX_CHECK(packed.size() == out.size(), "it has ", packed.size(), " bytes, but ", out.size(), " are expected");
      std::memcpy(out.data(), packed.data(), out.size());
      return;
    case Compressor::kGzip:
    case Compressor::kZlib:
      return inflate_all(packed, out);
    case Compressor::kZstd:
      return decode_bytes(Codec::kZstd, packed, out);
    case Compressor::kLz4:
      return decode_sized_lz4(packed, out);
    case Compressor::kBlosc:
      return blosc_decode(packed, out, wanted);
  }
}

std::vector<std::byte> encode_chunk(const ChunkEncoding& encoding, Bytes bytes) {
  switch (encoding.compressor) {
    case Compressor::kNone:
      return {bytes.begin(), bytes.end()};
    case Compressor::kGzip:
      return deflate_all(bytes, DeflateKind::kGzip, encoding.level);
    case Compressor::kZlib:
      return deflate_all(bytes, DeflateKind::kZlib, encoding.level);
    case Compressor::kZstd:
      return encode_bytes(Codec::kZstd, bytes, encoding.level);
    case Compressor::kBlosc:
      return blosc_encode(bytes, encoding.type_size);
    case Compressor::kLz4:
      break;
  }
  const std::vector<std::byte> block = lz4_encode(bytes);
  std::vector<std::byte> packed(4 + block.size());
  const uint32_t size = static_cast<uint32_t>(bytes.size());
  std::memcpy(packed.data(), &size, 4);
  std::memcpy(packed.data() + 4, block.data(), block.size());
  return packed;
}

}  // namespace vox::zarr
