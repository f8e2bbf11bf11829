// Arrays stored as a grid of chunks (Zarr, HDF5): which chunks a box touches, and the way from a chunk to the box.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/volume.h"
#include "io/blosc.h"
#include "io/raw_reader.h"

namespace vox {

struct ChunkGrid {
  ElementType type = ElementType::kUInt8;
  bool swap_bytes = false;
  std::array<int64_t, 4> sizes{1, 1, 1, 1};    // of the array: channel, z, y, x
  std::array<int64_t, 4> chunk{1, 1, 1, 1};    // of a chunk; edge chunks are whole, what hangs over is not used
  std::array<int64_t, 4> strides{0, 0, 0, 1};  // of elements in a chunk
  int64_t chunk_bytes = 0;                     // of a whole chunk, unpacked
};

// The part of one chunk that one channel of a box needs.
struct ChunkPart {
  std::array<int64_t, 4> chunk{};  // position in the grid
  int64_t channel = 0;             // inside the chunk
  Box3 box;                        // likewise
  Extent3 to;                      // where the part begins inside the box that is read
};

std::vector<ChunkPart> parts_of(const ChunkGrid& grid, const Box3& box, int64_t channel);
ByteRange bytes_of(const ChunkGrid& grid, const ChunkPart& part);  // in the unpacked chunk

struct BoxTarget {
  std::byte* out = nullptr;
  Extent3 extent;  // of the box that `out` holds
  DType dtype = DType::kUInt8;
};
// `chunk` points at where the first byte of the chunk is or would be; only bytes_of(part) are looked at.
void copy_part(const ChunkGrid& grid, const ChunkPart& part, const std::byte* chunk, const BoxTarget& target,
               const std::string& path);
void fill_part(const ChunkPart& part, const std::byte* value, const BoxTarget& target);  // `value` in target.dtype

}  // namespace vox
