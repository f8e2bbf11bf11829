// The bytes of an array as they are once unpacked: a stretch of a file as it is, or one that is deflated. Packed bytes
// are inflated from their begin and no farther than needed, through a window of fixed size; a stream that has got
// somewhere is kept for the next read at or after that place, so that reading slab by slab inflates once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"

namespace vox {

enum class Packing { kNone, kDeflate, kGzip };

struct PackedRange {
  Packing packing = Packing::kNone;
  int64_t begin = 0, end = 0;                // in the file
  std::optional<int64_t> unpacked_bytes{};   // as an archive's directory says
  std::optional<uint32_t> unpacked_crc32{};  // likewise
};

// Reads forward only; one thread.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual int64_t position() const = 0;
  virtual void read(int64_t offset, std::span<std::byte> out) = 0;  // offset >= position()
  virtual void finish() = 0;                                        // checks what follows: completeness and checksum
};

class ByteSource {
 public:
  ByteSource(InputFile file, const PackedRange& range);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  const std::string& path() const { return file_.path(); }
  int64_t file_bytes() const { return file_.size(); }
  Packing packing() const { return range_.packing; }
  int64_t capacity() const;  // no more unpacked bytes than this can be here

  struct StreamNeed {
    int64_t begin = 0, end = 0;  // unpacked bytes that will be asked for lie in between
    int64_t read_ahead = 0;      // bytes after each place asked for that are mostly needed too
  };
  // Any thread. A stream that comes back through give_back() is used again.
  std::unique_ptr<ByteStream> take_stream(const StreamNeed& need) const;
  void give_back(std::unique_ptr<ByteStream> stream) const;

 private:
  InputFile file_;
  PackedRange range_;
  mutable std::mutex mutex_;  // guards idle_
  mutable std::vector<std::unique_ptr<ByteStream>> idle_;
};

// The first bytes of a gzip file, unpacked as far as `head` goes; empty where it is no gzip.
std::vector<std::byte> inflate_head(std::span<const std::byte> head);

// Packs what is written to it and hands it on to `file`.
class DeflateWriter {
 public:
  DeflateWriter(OutputFile& file, Packing packing, int level);  // level -1: zlib's default
  ~DeflateWriter();
  DeflateWriter(const DeflateWriter&) = delete;
  DeflateWriter& operator=(const DeflateWriter&) = delete;
  void write(std::span<const std::byte> bytes);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// CRC-32 as zip and gzip use it.
uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t seed = 0);

}  // namespace vox
