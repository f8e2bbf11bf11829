#pragma once

#include <cstdint>
#include <string>

#include "io/format.h"

namespace vox::tiff {

constexpr int64_t kClassicLimit = int64_t{0xffffffff};  // offsets of classic TIFF have 32 bits

// Strips, page by page, then all directories; BigTIFF where the file grows beyond `classic_limit`.
void write_stack(const std::string& path, const SlabSource& source, const WriteOptions& options, ThreadPool* pool,
                 int64_t classic_limit = kClassicLimit);

}  // namespace vox::tiff
