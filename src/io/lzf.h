// LZF (Lehmann), as h5py's filter uses it.
#pragma once

#include <cstddef>
#include <span>

namespace vox {

// Fills `out` exactly, or Error.
void lzf_decode(std::span<const std::byte> packed, std::span<std::byte> out);

}  // namespace vox
