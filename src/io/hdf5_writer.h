// Writes one dataset, "volume", to an HDF5 file: chunks packed in the pool, the file whole or not at all.
#pragma once

#include <string>

#include "io/format.h"

namespace vox::h5 {

void write_file(const std::string& path, const SlabSource& source, const WriteOptions& options, ThreadPool* pool);

}  // namespace vox::h5
