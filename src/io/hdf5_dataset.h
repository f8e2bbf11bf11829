// One dataset of an HDF5 file: finding it, and what it says of itself. Included only where the library is there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/chunk_grid.h"
#include "io/hdf5_chunks.h"

namespace vox::h5 {

// All of these expect lock_library() to be held.
File open_file(const std::string& path);
std::vector<std::string> volumes_in(const File& file);  // datasets of numbers with three axes or more

struct DatasetFacts {
  std::vector<std::string> files;     // that hold it: links, external storage and virtual datasets lead to others
  std::vector<int64_t> shape, chunk;  // every axis; chunk is empty where the data is not chunked
  ElementType type = ElementType::kUInt8;
  bool swap_bytes = false;
  std::optional<int64_t> offset;     // of contiguous data in the file
  std::optional<Pipeline> pipeline;  // of chunks that we decode ourselves
  std::vector<std::byte> fill;       // one element, native, as the type it is read as
  std::optional<Spacing3> spacing;   // attribute element_size_um, as ilastik and Fiji write it
};
DatasetFacts read_facts(const File& file, const Dataset& dataset, const std::string& name);

hid_t memory_type(DType dtype);
inline constexpr const char* kElementSizeKey = "element_size_um";

}  // namespace vox::h5
