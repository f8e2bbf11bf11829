#include "base/error.h"
#include "io/zip_archive.h"
#include "io/zip_records.h"

namespace vox {
namespace {

using namespace zip;

constexpr uint16_t kVersion = 45;            // zip64 is always written: one way for every size
constexpr uint16_t kDosDate = (1 << 5) | 1;  // 1980-01-01, so that equal contents give equal files
constexpr uint16_t kPaddingExtra = 0x4246;   // "FB", as PyTorch pads
constexpr int64_t kFixedBytes = 30, kZip64Bytes = 20, kExtraHead = 4;

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

void add_entry(RecordWriter& record, const ZipMember& member) {
  record.add(kDirectoryEntry).add(kVersion).add(kVersion).add(uint16_t{0}).add(member.method);
  record.add(uint16_t{0}).add(kDosDate).add(member.crc32).add(uint32_t{kInZip64}).add(uint32_t{kInZip64});
  record.add(static_cast<uint16_t>(member.name.size())).add(uint16_t{28}).add(uint16_t{0}).add(uint16_t{0});
  record.add(uint16_t{0}).add(uint32_t{0}).add(uint32_t{kInZip64}).add_text(member.name);
  record.add(kZip64Extra).add(uint16_t{24}).add(member.unpacked_bytes).add(member.packed_bytes);
  record.add(member.local_header);
}

}  // namespace

std::string ZipWriter::local_header(const Written& written) {
  const ZipMember& member = written.member;
  RecordWriter record;
  record.add(kLocalHeader).add(kVersion).add(uint16_t{0}).add(member.method).add(uint16_t{0}).add(kDosDate);
  record.add(member.crc32).add(uint32_t{kInZip64}).add(uint32_t{kInZip64});
  record.add(static_cast<uint16_t>(member.name.size())).add(static_cast<uint16_t>(kZip64Bytes + written.padding));
  record.add_text(member.name);
  record.add(kZip64Extra).add(uint16_t{16}).add(member.unpacked_bytes).add(member.packed_bytes);
  if (written.padding == 0) return record.text();
  const int64_t filler = written.padding - kExtraHead;
  record.add(kPaddingExtra).add(static_cast<uint16_t>(filler)).add_text(std::string(static_cast<size_t>(filler), 'Z'));
  return record.text();
}

void ZipWriter::begin(const std::string& name, uint16_t method, int64_t alignment) {
  VOX_ASSERT(name.size() <= 0xffff && alignment >= 1 && alignment <= 4096);
  Written written;
  written.member.name = name;
  written.member.method = method;
  written.member.local_header = static_cast<uint64_t>(file_.position());
  const int64_t unpadded = file_.position() + kFixedBytes + static_cast<int64_t>(name.size()) + kZip64Bytes;
  if (unpadded % alignment != 0) {
    written.padding = (alignment - unpadded % alignment) % alignment;
    while (written.padding < kExtraHead) written.padding += alignment;
  }
  file_.write(local_header(written));
  written.data_begin = file_.position();
  members_.push_back(written);
}

void ZipWriter::end(uint32_t crc32, uint64_t unpacked_bytes) {
  Written& written = members_.back();
  written.member.crc32 = crc32;
  written.member.unpacked_bytes = unpacked_bytes;
  written.member.packed_bytes = static_cast<uint64_t>(file_.position() - written.data_begin);
  const std::string complete = local_header(written);
  file_.write_at(static_cast<int64_t>(written.member.local_header), std::as_bytes(std::span(complete)));
}

void ZipWriter::add(const std::string& name, std::span<const std::byte> bytes, int64_t alignment) {
  begin(name, kZipStored, alignment);
  file_.write(bytes);
  end(crc32_of(bytes), bytes.size());
}

void ZipWriter::finish() {
  RecordWriter record;
  for (const Written& written : members_) add_entry(record, written.member);
  const uint64_t bytes = record.text().size(), begin = static_cast<uint64_t>(file_.position()), count = members_.size();
  record.add(kZip64End).add(uint64_t{44}).add(kVersion).add(kVersion).add(uint32_t{0}).add(uint32_t{0});
  record.add(count).add(count).add(bytes).add(begin);
  record.add(kZip64Locator).add(uint32_t{0}).add(begin + bytes).add(uint32_t{1});
  const uint16_t short_count = static_cast<uint16_t>(std::min<uint64_t>(count, 0xffff));
  record.add(kDirectoryEnd).add(uint16_t{0}).add(uint16_t{0}).add(short_count).add(short_count);
  record.add(uint32_t{kInZip64}).add(uint32_t{kInZip64}).add(uint16_t{0});
  file_.write(record.text());
}

}  // namespace vox
