// NumPy's archives: a zip file of .npy members, stored or deflated, with or without zip64 (PKWARE APPNOTE 6.3).
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/byte_source.h"
#include "io/format.h"
#include "io/npy.h"

namespace vox {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kDirectoryEnd = 0x06054b50;
constexpr uint32_t kZip64End = 0x06064b50, kZip64Locator = 0x07064b50;
constexpr uint16_t kStored = 0, kDeflated = 8, kZip64Extra = 1, kEncrypted = 1;
constexpr int64_t kLargestDirectory = int64_t{64} << 20;
constexpr uint64_t kInZip64 = 0xffffffffu;

struct Member {
  std::string name;  // without .npy
  uint16_t flags = 0, method = 0;
  uint32_t crc32 = 0;
  uint64_t packed_bytes = 0, unpacked_bytes = 0, local_header = 0;
};

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
                     ": the archive has no zip directory at its end; it is not an .npz file, or it was not "
                     "copied or downloaded completely"));
}

// Sizes that do not fit into 32 bits stand in an extra field, each only where its short form says so.
void apply_zip64(std::span<const std::byte> extra, Member* member, const std::string& path) {
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

std::vector<Member> read_members(const InputFile& file) {
  const std::string& path = file.path();
  const Directory place = find_directory(file);
  VOX_CHECK(place.bytes <= kLargestDirectory, path, ": the zip directory claims ", place.bytes, " bytes");
  const auto directory = read_bytes(file, static_cast<int64_t>(place.offset), static_cast<int64_t>(place.bytes));
  std::vector<Member> members;
  for (size_t at = 0; at < directory.size();) {
    VOX_CHECK(little<uint32_t>(directory, at, path) == kDirectoryEntry, path, ": the zip directory is damaged");
    Member member;
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
    if (!ends_with(member.name, ".npy")) continue;
    member.name.resize(member.name.size() - 4);
    members.push_back(std::move(member));
  }
  VOX_CHECK(!members.empty(), path, ": the archive holds no NumPy array");
  return members;
}

const Member& choose(const std::vector<Member>& members, const std::string& wanted, const std::string& path) {
  if (wanted.empty() && members.size() == 1) return members.front();
  std::vector<std::string> names;
  for (const Member& member : members) {
    if (!wanted.empty() && member.name == wanted) return member;
    names.push_back(member.name);
  }
  const std::string what = wanted.empty() ? ": the archive holds several arrays; say which one as " + path + ":NAME"
                                          : ": there is no array \"" + wanted + "\" in the archive";
  throw Error(concat(path, what, " (it holds ", join(names, ", "), ")"));
}

PackedRange range_of(const InputFile& file, const Member& member) {
  VOX_CHECK((member.flags & kEncrypted) == 0, file.path(), ": the array \"", member.name, "\" is encrypted");
  VOX_CHECK(member.method == kStored || member.method == kDeflated, file.path(), ": the array \"", member.name,
            "\" is packed by zip method ", member.method, "; known are stored (0) and deflate (8)");
  constexpr int64_t kLocalBytes = 30;
  const int64_t at = static_cast<int64_t>(member.local_header);
  const auto local = read_bytes(file, at, kLocalBytes);
  VOX_CHECK(little<uint32_t>(local, 0, file.path()) == kLocalHeader, file.path(),
            ": the zip directory points to something that is no member; the file is damaged");
  const int64_t begin =
      at + kLocalBytes + little<uint16_t>(local, 26, file.path()) + little<uint16_t>(local, 28, file.path());
  VOX_CHECK(begin <= file.size() && member.packed_bytes <= static_cast<uint64_t>(file.size() - begin), file.path(),
            ": the array \"", member.name, "\" reaches beyond the end of the file (", file.size(), " bytes)");
  return {.packing = member.method == kStored ? Packing::kNone : Packing::kDeflate,
          .begin = begin,
          .end = begin + static_cast<int64_t>(member.packed_bytes),
          .unpacked_bytes = static_cast<int64_t>(member.unpacked_bytes),
          .unpacked_crc32 = member.crc32};
}

NpyHeader read_header(const ByteSource& source, const std::string& name) {
  std::vector<std::byte> head(kNpyPrefixBytes);
  const auto fill = [&](size_t from) {
    VOX_CHECK(static_cast<int64_t>(head.size()) <= source.capacity(), name, ": the array is too short for a header");
    const auto stream = source.take_stream({static_cast<int64_t>(from), static_cast<int64_t>(head.size()), 0});
    stream->read(static_cast<int64_t>(from), std::span(head).subspan(from));
  };
  fill(0);
  head.resize(static_cast<size_t>(npy_header_bytes(head, name)));
  fill(0);
  return parse_npy_header(head, name);
}

std::unique_ptr<VolumeReader> open_member(const std::string& path, const std::string& wanted) {
  InputFile file(path);
  const std::vector<Member> members = read_members(file);
  const Member& member = choose(members, wanted, path);
  const PackedRange range = range_of(file, member);
  auto source = std::make_unique<ByteSource>(std::move(file), range);
  const std::string name = path + ":" + member.name;
  const RawLayout layout = npy_layout(read_header(*source, name), name);
  VolumeInfo info;
  info.format = "npz";
  info.codec = range.packing == Packing::kNone ? "none" : "deflate";
  return std::make_unique<RawReader>(std::move(source), layout, info);
}

std::unique_ptr<VolumeReader> open(const std::string& path) {
  return open_member(path, "");
}

bool matches(std::span<const std::byte> head, const fs::path&) {
  constexpr size_t kNameAt = 30;
  if (head.size() < kNameAt || std::memcmp(head.data(), "PK\3\4", 4) != 0) return false;
  const size_t name_bytes = static_cast<size_t>(head[26]) + 256 * static_cast<size_t>(head[27]);
  if (name_bytes > head.size() - kNameAt) return false;
  return ends_with({reinterpret_cast<const char*>(head.data()) + kNameAt, name_bytes}, ".npy");
}

// ---- writing ----

class RecordWriter {
 public:
  template <class T>
  RecordWriter& add(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  RecordWriter& add_text(const std::string& text) {
    text_ += text;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

constexpr uint16_t kVersion = 45;            // zip64 is always written: one way for every size
constexpr uint16_t kDosDate = (1 << 5) | 1;  // 1980-01-01, so that equal volumes give equal files
const std::string kMemberName = "volume.npy";

std::string local_header(const Member& member) {
  RecordWriter record;
  record.add(kLocalHeader).add(kVersion).add(uint16_t{0}).add(member.method).add(uint16_t{0}).add(kDosDate);
  record.add(member.crc32).add(uint32_t{kInZip64}).add(uint32_t{kInZip64});
  record.add(static_cast<uint16_t>(kMemberName.size())).add(uint16_t{20}).add_text(kMemberName);
  record.add(kZip64Extra).add(uint16_t{16}).add(member.unpacked_bytes).add(member.packed_bytes);
  return record.text();
}

std::string directory(const Member& member, int64_t position) {
  RecordWriter record;
  record.add(kDirectoryEntry).add(kVersion).add(kVersion).add(uint16_t{0}).add(member.method);
  record.add(uint16_t{0}).add(kDosDate).add(member.crc32).add(uint32_t{kInZip64}).add(uint32_t{kInZip64});
  record.add(static_cast<uint16_t>(kMemberName.size())).add(uint16_t{28}).add(uint16_t{0}).add(uint16_t{0});
  record.add(uint16_t{0}).add(uint32_t{0}).add(uint32_t{kInZip64}).add_text(kMemberName);
  record.add(kZip64Extra).add(uint16_t{24}).add(member.unpacked_bytes).add(member.packed_bytes);
  record.add(member.local_header);
  const uint64_t bytes = record.text().size(), begin = static_cast<uint64_t>(position);
  record.add(kZip64End).add(uint64_t{44}).add(kVersion).add(kVersion).add(uint32_t{0}).add(uint32_t{0});
  record.add(uint64_t{1}).add(uint64_t{1}).add(bytes).add(begin);
  record.add(kZip64Locator).add(uint32_t{0}).add(begin + bytes).add(uint32_t{1});
  record.add(kDirectoryEnd).add(uint16_t{0}).add(uint16_t{0}).add(uint16_t{1}).add(uint16_t{1});
  record.add(static_cast<uint32_t>(bytes)).add(uint32_t{kInZip64}).add(uint16_t{0});
  return record.text();
}

void write(const std::string& path, const Volume& volume, const WriteOptions& options, ThreadPool*) {
  const bool packed = options.codec.empty() || options.codec == "deflate";
  VOX_CHECK(packed || options.codec == "none", path, ": .npz files cannot be packed by codec \"", options.codec,
            "\"; use deflate or none");
  const std::string header = npy_header_for(volume.info);
  const std::span voxels(volume.data.data(), static_cast<size_t>(volume.info.bytes()));
  Member member;
  member.method = packed ? kDeflated : kStored;
  member.unpacked_bytes = header.size() + voxels.size();
  member.crc32 = crc32_of(voxels, crc32_of(std::as_bytes(std::span(header))));
  OutputFile file(path);
  const std::string placeholder = local_header(member);
  file.write(placeholder);
  if (packed) {
    DeflateWriter deflate(file, Packing::kDeflate, options.level);
    deflate.write(std::as_bytes(std::span(header)));
    deflate.write(voxels);
    deflate.finish();
  } else {
    file.write(header);
    file.write(voxels);
  }
  member.packed_bytes = static_cast<uint64_t>(file.position()) - placeholder.size();
  const std::string complete = local_header(member);
  file.write_at(0, std::as_bytes(std::span(complete)));
  file.write(directory(member, file.position()));
  file.commit();
}

}  // namespace

FormatEntry npz_format() {
  return {.name = "npz",
          .help = "NumPy archive; file.npz:array names one of several arrays",
          .suffixes = {".npz"},
          .codecs = {"deflate", "none"},
          .matches = matches,
          .open = open,
          .write = write,
          .open_dataset = open_member};
}

}  // namespace vox
