// Room and speed of a folder, measured with a small file that is gone afterwards.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"

namespace vox {

fs::path existing_parent(const fs::path& folder);  // itself, or the nearest above it that is there

struct DiskSpeed {
  double write_mb_s = 0, read_mb_s = 0;  // 1e6 bytes; to and from the disk, not the page cache
  std::string problem;                   // of a folder that cannot be written; else empty
};
DiskSpeed measure_disk(const fs::path& folder, int64_t bytes);
int64_t free_bytes(const fs::path& folder);  // of the nearest folder that is there

}  // namespace vox
