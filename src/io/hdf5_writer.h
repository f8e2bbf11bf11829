// Writes one dataset to an HDF5 file: chunks packed in the pool, the file whole or not at all. `path` is a new file
// with nothing but "volume"; `path:dataset` is put beside what the file holds, in place of a dataset of that name.
#pragma once

#include <string>

#include "io/format.h"

namespace vox::h5 {

void write_file(const std::string& path, const SlabSource& source, const WriteOptions& options, ThreadPool* pool);

}  // namespace vox::h5
