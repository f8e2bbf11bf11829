#include "io/zip_archive.h"

#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "io/zip_records.h"

namespace vox {
namespace {

using namespace zip;

constexpr uint16_t kEncrypted = 1;
constexpr int64_t kLargestDirectory = int64_t{64} << 20;

template <class T>
T little(std::span<const std::byte> bytes, size_t offset, const std::string& path) {
  VOX_CHECK(offset + sizeof(T) <= bytes.size(), path, ": the zip directory is damaged: an entry breaks off");
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::vector<std::byte> read_bytes(const InputFile& file, int64_t offset, int64_t count) {
  VOX_CHECK(offset >= 0 && count >= 0 && count <= file.size() && offset <= file.size() - count, file.path(),
            ": the zip directory points outside the file (byte ", offset, " of ", file.size(),
            "); the file is damaged or was not copied completely");
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  file.read(offset, bytes);
  return bytes;
}

struct Directory {
  uint64_t offset = 0, bytes = 0;
};

Directory find_zip64_directory(const InputFile& file, int64_t end_record) {
  constexpr int64_t kLocatorBytes = 20, kEndBytes = 56;
  const auto locator = read_bytes(file, end_record - kLocatorBytes, kLocatorBytes);
  VOX_CHECK(little<uint32_t>(locator, 0, file.path()) == kZip64Locator, file.path(),
            ": the zip64 directory of the archive is missing; the file is damaged");
  const auto record = read_bytes(file, static_cast<int64_t>(little<uint64_t>(locator, 8, file.path())), kEndBytes);
  VOX_CHECK(little<uint32_t>(record, 0, file.path()) == kZip64End, file.path(),
            ": the zip64 directory of the archive is missing; the file is damaged");
  return {little<uint64_t>(record, 48, file.path()), little<uint64_t>(record, 40, file.path())};
}

// The end record is the last thing in the file but for a comment of at most 65535 bytes.
Directory find_directory(const InputFile& file) {
  constexpr int64_t kEndBytes = 22, kLongestComment = 65535;
  const int64_t from = std::max<int64_t>(0, file.size() - kEndBytes - kLongestComment);
  const auto tail = read_bytes(file, from, file.size() - from);
  for (int64_t at = static_cast<int64_t>(tail.size()) - kEndBytes; at >= 0; --at) {
    const size_t place = static_cast<size_t>(at);
    if (little<uint32_t>(tail, place, file.path()) != kDirectoryEnd) continue;
    const uint32_t bytes = little<uint32_t>(tail, place + 12, file.path());
    const uint32_t offset = little<uint32_t>(tail, place + 16, file.path());
    if (offset == kInZip64 || bytes == kInZip64) return find_zip64_directory(file, from + at);
    return {offset, bytes};
  }
  throw Error(concat(file.path(),
                     ": the archive has no zip directory at its end; it is not a zip file, or it was not "
                     "copied or downloaded completely"));
}

// Sizes that do not fit into 32 bits stand in an extra field, each only where its short form says so.
void apply_zip64(std::span<const std::byte> extra, ZipMember* member, const std::string& path) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const uint16_t id = little<uint16_t>(extra, at, path), bytes = little<uint16_t>(extra, at + 2, path);
    at += 4;
    size_t field = at;
    at += bytes;
    if (id != kZip64Extra) continue;
    for (uint64_t* value : {&member->unpacked_bytes, &member->packed_bytes, &member->local_header}) {
      if (*value != kInZip64) continue;
      *value = little<uint64_t>(extra, field, path);
      field += 8;
    }
  }
}

void require_checksum(const InputFile& file, const ZipMember& member, std::span<const std::byte> bytes) {
  VOX_CHECK(member.crc32 == 0 || crc32_of(bytes) == member.crc32, file.path(), ": the bytes of the member \"",
            printable(member.name), "\" do not have the checksum that the archive promises; the file is damaged");
}

}  // namespace

bool is_zip(std::span<const std::byte> head) {
  return head.size() >= 4 && (std::memcmp(head.data(), "PK\3\4", 4) == 0 || std::memcmp(head.data(), "PK\5\6", 4) == 0);
}

std::vector<ZipMember> read_zip_directory(const InputFile& file) {
  const std::string& path = file.path();
  const Directory place = find_directory(file);
  VOX_CHECK(place.bytes <= kLargestDirectory, path, ": the zip directory claims ", place.bytes, " bytes");
  const auto directory = read_bytes(file, static_cast<int64_t>(place.offset), static_cast<int64_t>(place.bytes));
  std::vector<ZipMember> members;
  for (size_t at = 0; at < directory.size();) {
    VOX_CHECK(little<uint32_t>(directory, at, path) == kDirectoryEntry, path, ": the zip directory is damaged");
    ZipMember member;
    member.flags = little<uint16_t>(directory, at + 8, path);
    member.method = little<uint16_t>(directory, at + 10, path);
    member.crc32 = little<uint32_t>(directory, at + 16, path);
    member.packed_bytes = little<uint32_t>(directory, at + 20, path);
    member.unpacked_bytes = little<uint32_t>(directory, at + 24, path);
    const size_t name_bytes = little<uint16_t>(directory, at + 28, path);
    const size_t extra_bytes = little<uint16_t>(directory, at + 30, path);
    const size_t comment_bytes = little<uint16_t>(directory, at + 32, path);
    member.local_header = little<uint32_t>(directory, at + 42, path);
    VOX_CHECK(at + 46 + name_bytes + extra_bytes <= directory.size(), path, ": the zip directory is damaged");
    member.name.assign(reinterpret_cast<const char*>(directory.data()) + at + 46, name_bytes);
    apply_zip64(std::span(directory).subspan(at + 46 + name_bytes, extra_bytes), &member, path);
    at += 46 + name_bytes + extra_bytes + comment_bytes;
    members.push_back(std::move(member));
  }
  return members;
}

PackedRange zip_range(const InputFile& file, const ZipMember& member) {
  VOX_CHECK((member.flags & kEncrypted) == 0, file.path(), ": the member \"", printable(member.name),
            "\" is encrypted");
  VOX_CHECK(member.method == kZipStored || member.method == kZipDeflated, file.path(), ": the member \"",
            printable(member.name), "\" is packed by zip method ", member.method,
            "; known are stored (0) and deflate (8)");
  constexpr int64_t kLocalBytes = 30;
  const int64_t at = static_cast<int64_t>(member.local_header);
  const auto local = read_bytes(file, at, kLocalBytes);
  VOX_CHECK(little<uint32_t>(local, 0, file.path()) == kLocalHeader, file.path(),
            ": the zip directory points to something that is no member; the file is damaged");
  const int64_t begin =
      at + kLocalBytes + little<uint16_t>(local, 26, file.path()) + little<uint16_t>(local, 28, file.path());
  VOX_CHECK(begin <= file.size() && member.packed_bytes <= static_cast<uint64_t>(file.size() - begin), file.path(),
            ": the member \"", printable(member.name), "\" reaches beyond the end of the file (", file.size(),
            " bytes)");
  return {.packing = member.method == kZipStored ? Packing::kNone : Packing::kDeflate,
          .begin = begin,
          .end = begin + static_cast<int64_t>(member.packed_bytes),
          .unpacked_bytes = static_cast<int64_t>(member.unpacked_bytes),
          .unpacked_crc32 = member.crc32};
}

std::vector<std::byte> read_zip_member(const InputFile& file, const ZipMember& member, int64_t most) {
  VOX_CHECK(member.unpacked_bytes <= static_cast<uint64_t>(most), file.path(), ": the member \"",
            printable(member.name), "\" says it has ", member.unpacked_bytes, " bytes, more than the ", most,
            " that are read");
  constexpr uint64_t kMostExpansion = 1032;  // of deflate, by its design: a directory that promises more lies
  VOX_CHECK(member.unpacked_bytes / kMostExpansion <= member.packed_bytes, file.path(), ": the member \"",
            printable(member.name), "\" cannot unpack to ", member.unpacked_bytes, " bytes; the file is damaged");
  zip_range(file, member);  // before the memory is taken: the packed bytes must be there
  std::vector<std::byte> bytes(static_cast<size_t>(member.unpacked_bytes));
  read_zip_member(file, member, bytes);
  return bytes;
}

void read_zip_member(const InputFile& file, const ZipMember& member, std::span<std::byte> out) {
  VOX_ASSERT(out.size() == member.unpacked_bytes);
  PackedRange range = zip_range(file, member);
  if (range.packing == Packing::kNone) {
    VOX_CHECK(member.packed_bytes == member.unpacked_bytes, file.path(), ": the member \"", printable(member.name),
              "\" is stored but has two sizes; the file is damaged");
    file.read(range.begin, out);
    return require_checksum(file, member, out);
  }
  range.unpacked_crc32.reset();  // the whole is here at once: checked below, where the member can be named
  const ByteSource source(InputFile(file.path()), range);
  const auto stream = source.take_stream({0, static_cast<int64_t>(out.size()), 0});
  stream->read(0, out);
  stream->finish();
  require_checksum(file, member, out);
}

}  // namespace vox
