// Where the chunks of an HDF5 dataset lie, and what undoes their filters. Included only where the library is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/chunk_grid.h"
#include "io/hdf5_handles.h"

namespace vox::h5 {

enum class Filter { kDeflate, kShuffle, kFletcher32, kLzf, kZstd, kBlosc };

struct Pipeline {
  std::vector<Filter> filters;  // in the order they were applied
  int64_t type_size = 1;
};
// Nothing where one of the filters is not among those above: the library shall try.
std::optional<Pipeline> read_pipeline(hid_t creation, int64_t type_size);

struct ChunkPlace {
  uint64_t address = 0, bytes = 0;  // 0 bytes: not there, all fill value
  uint32_t skipped_filters = 0;     // bit i: filter i was not applied to this chunk
};

// By the library's index; 0: never written. Error: the index cannot be read, so nobody knows.
hsize_t chunk_bytes(hid_t dataset, const hsize_t* origin);

// Undoes the filters. Error says what is wrong with the bytes.
void decode_chunk(const Pipeline& pipeline, uint32_t skipped_filters, std::span<const std::byte> packed,
                  std::span<std::byte> out, const ByteRange& wanted);

uint32_t fletcher32(std::span<const std::byte> bytes);  // as HDF5 computes it

}  // namespace vox::h5
