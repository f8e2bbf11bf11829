// A volume re-stored so that a patch reads its part alone. One file: header, index, chunks; the index holds a checksum
// of each chunk, the header one of itself and the index.
//
// Volumes up to kWidest voxels wide lie in the file as they lie in memory, slice after slice, raw: a patch maps the
// rows it needs, and nothing is copied. (Measured for 160x215x320 bytes on a 2-core VM: mapped 0.7 ms, read 1.6 ms, LZ4
// 4 ms.) Wider ones are cut in x, where a row's page would hold mostly neighbours; their chunks are raw, LZ4 where that
// at least halves them, or one value.
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

struct MappedBox {  // rows of a dense file, in memory while `owner` lives
  Box3 box;         // whole rows in x
  const std::byte* data = nullptr;
  int64_t bytes = 0;  // that it makes resident
  std::shared_ptr<const void> owner;
};

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
  enum class Trust { kCheck, kAsWritten };  // nobody touched it since: no need to look at its checksums
  // DamagedChunks where header or index are not as written.
  ChunkFile(const fs::path& path, uint64_t key, Trust trust = Trust::kCheck);

  VolumeInfo info() const;
  // Slices lie as in memory, `extent` apart: boxes can be mapped.
  bool dense() const;
  int64_t mapped_bytes(const Box3& box) const;  // that map() makes resident at most
  MappedBox map(const Box3& box) const;
  // `box` to `out`, dense z, y, x; returns the bytes read. A chunk's checksum is looked at on its first use.
  int64_t read(const Box3& box, std::byte* out) const;

 private:
  struct Target;
  int64_t read_chunk(int64_t number, const Box3& chunk, const Target& target) const;
  int64_t read_rows(const ChunkEntry& entry, const Box3& chunk, const Target& target) const;
  int64_t load_chunk(const ChunkEntry& entry, int64_t raw_bytes, std::vector<std::byte>& chunk) const;
  void verify_slices(int64_t z_begin, int64_t z_end) const;

  InputFile file_;
  ChunkHeader header_;
  std::vector<ChunkEntry> index_;
  std::unique_ptr<std::atomic<bool>[]> verified_;
};

}  // namespace vox
