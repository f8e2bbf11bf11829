// Whole zlib or gzip streams in one go; by libdeflate, which is more than twice as fast as zlib, where it was there at
// build time. What it refuses is given to zlib, which reads more (several gzip members) and can say what is wrong.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace vox {

// zlib or gzip, as the first bytes say. Error where it does not fill `out` exactly, or its checksum is wrong.
void inflate_all(std::span<const std::byte> packed, std::span<std::byte> out);
void inflate_all_by_zlib(std::span<const std::byte> packed, std::span<std::byte> out);  // the same, never by libdeflate
// By libdeflate or not at all: false where it is not there, or the stream is not one that fills `out` exactly. Then
// `out` holds anything.
bool inflate_quickly(std::span<const std::byte> packed, std::span<std::byte> out);

enum class DeflateKind { kZlib, kGzip };
std::vector<std::byte> deflate_all(std::span<const std::byte> bytes, DeflateKind kind, int level);

}  // namespace vox
