// What zip files are made of: the marks that begin each record.
#pragma once

#include <cstdint>

namespace vox::zip {

inline constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kDirectoryEnd = 0x06054b50;
inline constexpr uint32_t kZip64End = 0x06064b50, kZip64Locator = 0x07064b50;
inline constexpr uint16_t kZip64Extra = 1;
inline constexpr uint64_t kInZip64 = 0xffffffffu;  // the size stands in the zip64 record

}  // namespace vox::zip
