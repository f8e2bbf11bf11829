// A volume re-stored as chunks that a patch reads alone. One file: header, index, chunks; the index holds a checksum of
// each chunk, the header one of itself and the index. A chunk is raw, LZ4 where that at least halves it, or one value.
//
// Chunks are as wide as the volume (up to a limit), so that the rows of a raw chunk that a patch needs lie together
// and go from the file to their place in the block in one read per slice, without an assembly copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/volume.h"

namespace vox {

// The file is not what was written: rebuild it.
class DamagedChunks : public Error {
 public:
  using Error::Error;
};

struct ChunkEntry {
  int64_t offset = 0;  // of the bytes in the file; for kConstant the value itself
  uint32_t bytes = 0;
  uint32_t crc = 0;
  enum Kind : uint32_t { kRaw, kLz4, kConstant } kind = kRaw;
  uint32_t unused = 0;
};

struct ChunkHeader {
  char magic[8] = {'V', 'O', 'X', 'C', 'H', 'N', 'K', '1'};
  uint64_t key = 0;  // of the content, as the file's name has it
  int64_t dtype = 0;
  Extent3 extent, chunk;
  double scale = 1, offset = 0;
  int64_t chunks = 0;
  uint32_t crc = 0;  // of the header with this field 0, then of the index
  uint32_t unused = 0;
};

Extent3 chunk_shape(const Extent3& extent, DType dtype);

class ChunkWriter {
 public:
  // Voxels of one channel with info's type, extent, scale and offset.
  ChunkWriter(const fs::path& path, const VolumeInfo& info, uint64_t key);
  // Slices z_begin .. z_end, in order from 0; z_end is a multiple of slab() or the last slice.
  void write_slab(int64_t z_begin, int64_t z_end, const std::byte* voxels);
  void commit();
  int64_t slab() const { return header_.chunk.z; }

 private:
  ChunkEntry store(const std::byte* chunk, int64_t bytes);

  OutputFile file_;
  ChunkHeader header_;
  std::vector<ChunkEntry> index_;
  std::vector<std::byte> chunk_, packed_;
};

class ChunkFile {  // any thread
 public:
  ChunkFile(const fs::path& path, uint64_t key);  // DamagedChunks where header or index are not as written

  VolumeInfo info() const;
  // The x range that a block should have so that it is read without an assembly copy.
  Box3 widened(const Box3& box) const;
  // `box` to `out`, dense z, y, x; returns the bytes read. A chunk's checksum is looked at on its first use.
  int64_t read(const Box3& box, std::byte* out) const;

 private:
  struct Target;
  int64_t read_chunk(int64_t number, const Box3& chunk, const Target& target) const;
  int64_t read_rows(const ChunkEntry& entry, const Box3& chunk, const Target& target) const;
  int64_t load_chunk(const ChunkEntry& entry, int64_t raw_bytes, std::vector<std::byte>& chunk) const;

  InputFile file_;
  ChunkHeader header_;
  std::vector<ChunkEntry> index_;
  std::unique_ptr<std::atomic<bool>[]> verified_;
};

}  // namespace vox
