// Zip files (PKWARE APPNOTE 6.3): members stored or deflated, with or without zip64 and data descriptors. NumPy's .npz,
// PyTorch's .pt and Keras's .keras are such files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "io/byte_source.h"

namespace vox {

inline constexpr uint16_t kZipStored = 0, kZipDeflated = 8;

struct ZipMember {
  std::string name;
  uint16_t flags = 0, method = kZipStored;
  uint32_t crc32 = 0;  // 0 where the writer did not compute it
  uint64_t packed_bytes = 0, unpacked_bytes = 0, local_header = 0;
};

bool is_zip(std::span<const std::byte> head);  // by the first four bytes

// In the order of the directory. Errors name the file and say whether it is cut or damaged.
std::vector<ZipMember> read_zip_directory(const InputFile& file);
// Where the bytes of a member lie. Error for a packing that we do not know.
PackedRange zip_range(const InputFile& file, const ZipMember& member);
// A member whole, its size and checksum verified. Error where it has more than `most` bytes.
std::vector<std::byte> read_zip_member(const InputFile& file, const ZipMember& member, int64_t most);
// The same into bytes of just its size, without a copy of it in between.
void read_zip_member(const InputFile& file, const ZipMember& member, std::span<std::byte> out);

// Writes members one after another into `file`, each begun and ended; finish() writes the directory.
class ZipWriter {
 public:
  explicit ZipWriter(OutputFile& file) : file_(file) {}
  // The member's bytes are then written to the file; the first of them lies at a multiple of `alignment`.
  void begin(const std::string& name, uint16_t method = kZipStored, int64_t alignment = 1);
  void end(uint32_t crc32, uint64_t unpacked_bytes);
  void add(const std::string& name, std::span<const std::byte> bytes, int64_t alignment = 1);  // stored
  void finish();

 private:
  struct Written {
    ZipMember member;
    int64_t padding = 0, data_begin = 0;
  };
  static std::string local_header(const Written& written);

  OutputFile& file_;
  std::vector<Written> members_;
};

}  // namespace vox
