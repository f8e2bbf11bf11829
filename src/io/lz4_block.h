// Raw lz4 blocks. Where lz4 was absent at build time both say so.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace vox {

bool have_lz4();
void lz4_decode(std::span<const std::byte> packed, std::span<std::byte> out);  // fills `out` exactly, or Error
std::vector<std::byte> lz4_encode(std::span<const std::byte> bytes);

}  // namespace vox
