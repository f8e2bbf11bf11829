// The addresses of all chunks of a dataset, read past the library: its own look-ups walk every chunk before the one
// asked for (1.10 and 1.12), and hold its lock. Knows what h5py writes by default: version 1 object headers and
// B-trees.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "io/hdf5_chunks.h"

namespace vox::h5 {

class ChunkIndex {
 public:
  void add(std::vector<hsize_t> origin, const ChunkPlace& place);
  void finish();                                              // before find
  ChunkPlace find(const std::vector<hsize_t>& origin) const;  // 0 bytes: not there

 private:
  struct Entry {
    std::vector<hsize_t> origin;
    ChunkPlace place;
  };
  std::vector<Entry> entries_;  // by origin, once finished
};

// Nothing where the file is laid out otherwise: then the library is to be asked. Expects lock_library() to be held.
std::optional<ChunkIndex> read_chunk_index(const InputFile& file, hid_t file_id, hid_t dataset, size_t rank);

}  // namespace vox::h5
