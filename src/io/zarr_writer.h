// Writes a Zarr version 2 array, chunks in parallel, the folder whole or not at all. `path:array` is put into the group
// `path`, which is made where there is none.
#pragma once

#include <string>

#include "io/format.h"

namespace vox::zarr {

void write_array(const std::string& path, const SlabSource& source, const WriteOptions& options, ThreadPool* pool);

}  // namespace vox::zarr
