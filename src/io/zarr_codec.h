// Chunks of a Zarr array, packed and unpacked.
#pragma once

#include <span>
#include <vector>

#include "io/zarr_metadata.h"

namespace vox::zarr {

// Fills `out`, which has the size of a whole chunk; only what `wanted` touches is sure to be there afterwards.
void decode_chunk(const ChunkCodec& codec, std::span<const std::byte> packed, std::span<std::byte> out,
                  const ByteRange& wanted);

struct ChunkEncoding {
  Compressor compressor = Compressor::kBlosc;
  int level = -1;
  int64_t type_size = 1;
};
std::vector<std::byte> encode_chunk(const ChunkEncoding& encoding, std::span<const std::byte> bytes);

}  // namespace vox::zarr
