// Whole zlib or gzip streams in one go; by libdeflate, which is twice as fast as zlib, where it was there at build
// time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace vox {

// zlib or gzip, as the first bytes say. Error where it does not fill `out` exactly, or its checksum is wrong.
void inflate_all(std::span<const std::byte> packed, std::span<std::byte> out);

enum class DeflateKind { kZlib, kGzip };
std::vector<std::byte> deflate_all(std::span<const std::byte> bytes, DeflateKind kind, int level);

}  // namespace vox
