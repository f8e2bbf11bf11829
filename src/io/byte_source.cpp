#include "io/byte_source.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace vox {
namespace {

constexpr int64_t kBufferBytes = int64_t{1} << 16;
constexpr int64_t kReadAheadBytes = int64_t{1} << 18;
constexpr size_t kIdleStreams = 4;
constexpr int64_t kMostExpansion = 1032;  // of deflate, by its design

uInt as_uint(size_t bytes) {  // zlib counts in 32 bits
  return static_cast<uInt>(std::min<size_t>(bytes, size_t{1} << 30));
}
Bytef* as_zlib(const std::byte* bytes) {
  return reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes));
}
int window_bits(Packing packing) {
  return packing == Packing::kGzip ? 15 + 16 : -15;
}

class PlainStream : public ByteStream {
 public:
  PlainStream(const InputFile& file, const PackedRange& range, const ByteSource::StreamNeed& need)
      : file_(file), begin_(range.begin), need_(need) {}

  int64_t position() const override { return position_; }
  void finish() override {}
  void read(int64_t offset, std::span<std::byte> out) override {
    const int64_t bytes = static_cast<int64_t>(out.size());
    position_ = offset + bytes;
    const int64_t ahead = std::min({need_.read_ahead, kReadAheadBytes, need_.end - offset});
    if (bytes >= ahead) return file_.read(begin_ + offset, out);
    if (offset < ahead_begin_ || offset + bytes > ahead_begin_ + static_cast<int64_t>(ahead_.size())) {
      ahead_.resize(static_cast<size_t>(ahead));
      file_.read(begin_ + offset, ahead_);
      ahead_begin_ = offset;
    }
    std::memcpy(out.data(), ahead_.data() + (offset - ahead_begin_), out.size());
  }

 private:
  const InputFile& file_;
  const int64_t begin_;
  const ByteSource::StreamNeed need_;
  int64_t position_ = 0;
  std::vector<std::byte> ahead_;
  int64_t ahead_begin_ = 0;
};

class InflateStream : public ByteStream {
 public:
  InflateStream(const InputFile& file, const PackedRange& range)
      : file_(file), range_(range), next_(range.begin), input_(kBufferBytes), skipped_(kBufferBytes) {
    if (inflateInit2(&zlib_, window_bits(range.packing)) != Z_OK)
      throw Error(concat(file.path(), ": out of memory while unpacking"), Fault::kMachine);
  }
  ~InflateStream() override { inflateEnd(&zlib_); }
  InflateStream(const InflateStream&) = delete;
  InflateStream& operator=(const InflateStream&) = delete;

  int64_t position() const override { return position_; }

  void read(int64_t offset, std::span<std::byte> out) override {
    VOX_ASSERT(offset >= position_);
    while (position_ < offset) {
      const size_t step = static_cast<size_t>(std::min(offset - position_, kBufferBytes));
      require_some(pull({skipped_.data(), step}));
    }
    while (!out.empty()) {
      const size_t got = pull(out);
      require_some(got);
      out = out.subspan(got);
    }
  }

  void finish() override {
    while (pull(skipped_) > 0) {
    }
    const bool as_promised = position_ == range_.unpacked_bytes.value_or(position_) &&
                             checksum_ == range_.unpacked_crc32.value_or(checksum_);
    VOX_CHECK(as_promised, file_.path(),
              ": the unpacked data does not have the size and checksum that the archive promises; the file is damaged");
  }

 private:
  void require_some(size_t got) const {
    VOX_CHECK(got > 0, file_.path(), ": the packed data ends after ", position_,
              " bytes, before what its header says; was it copied or downloaded completely?");
  }

  bool refill() {  // false at the end of the range
    const int64_t count = std::min(kBufferBytes, range_.end - next_);
    if (count <= 0) return false;
    file_.read(next_, {input_.data(), static_cast<size_t>(count)});
    next_ += count;
    zlib_.next_in = as_zlib(input_.data());
    zlib_.avail_in = as_uint(static_cast<size_t>(count));
    return true;
  }

  // A gzip file may hold several members one after another (bgzip writes it so); zeros may pad its end.
  bool next_member() {
    if (range_.packing != Packing::kGzip || (zlib_.avail_in == 0 && !refill())) return false;
    return *zlib_.next_in == 0x1f && inflateReset(&zlib_) == Z_OK;
  }

  size_t pull(std::span<std::byte> out) {  // some of the next bytes; none at the end
    zlib_.next_out = as_zlib(out.data());
    zlib_.avail_out = as_uint(out.size());
    const uInt asked = zlib_.avail_out;
    while (!ended_ && zlib_.avail_out == asked) {
      const bool dry = zlib_.avail_in == 0 && !refill();  // zlib may still hold what it unpacked before
      const int status = inflate(&zlib_, Z_NO_FLUSH);
      VOX_CHECK(!dry || status != Z_BUF_ERROR, file_.path(), ": the packed data breaks off after ", position_,
                " unpacked bytes; was the file copied or downloaded completely?");
      if (status == Z_MEM_ERROR) throw Error(concat(file_.path(), ": out of memory while unpacking"), Fault::kMachine);
      VOX_CHECK(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, file_.path(),
                ": the packed data is damaged after ", position_, " unpacked bytes (",
                zlib_.msg == nullptr ? "it does not decode" : zlib_.msg, ")");
      if (status == Z_STREAM_END) ended_ = !next_member();
    }
    const size_t got = asked - zlib_.avail_out;
    if (range_.unpacked_crc32) checksum_ = crc32_of(out.first(got), checksum_);
    position_ += static_cast<int64_t>(got);
    return got;
  }

  const InputFile& file_;
  const PackedRange range_;
  z_stream zlib_{};
  int64_t next_;  // file offset of what is not in input_ yet
  int64_t position_ = 0;
  uint32_t checksum_ = 0;
  bool ended_ = false;
  std::vector<std::byte> input_, skipped_;
};

}  // namespace

ByteSource::ByteSource(InputFile file, const PackedRange& range) : file_(std::move(file)), range_(range) {}
ByteSource::~ByteSource() = default;

int64_t ByteSource::capacity() const {
  const int64_t packed = range_.end - range_.begin;
  if (range_.packing == Packing::kNone) return packed;
  return std::min(packed * kMostExpansion, range_.unpacked_bytes.value_or(packed * kMostExpansion));
}

std::unique_ptr<ByteStream> ByteSource::take_stream(const StreamNeed& need) const {
  if (range_.packing == Packing::kNone) return std::make_unique<PlainStream>(file_, range_, need);
  const std::lock_guard lock(mutex_);
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if ((*it)->position() > need.begin) continue;
    if (best == idle_.end() || (*it)->position() > (*best)->position()) best = it;
  }
  if (best == idle_.end()) return std::make_unique<InflateStream>(file_, range_);
  std::unique_ptr<ByteStream> stream = std::move(*best);
  idle_.erase(best);
  return stream;
}

void ByteSource::give_back(std::unique_ptr<ByteStream> stream) const {
  if (range_.packing == Packing::kNone) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() == kIdleStreams) idle_.erase(idle_.begin());
  idle_.push_back(std::move(stream));
}

std::vector<std::byte> inflate_head(std::span<const std::byte> head) {
  if (head.size() < 2 || head[0] != std::byte{0x1f} || head[1] != std::byte{0x8b}) return {};
  std::vector<std::byte> out(1024);
  z_stream zlib{};
  if (inflateInit2(&zlib, window_bits(Packing::kGzip)) != Z_OK) return {};
  zlib.next_in = as_zlib(head.data());
  zlib.avail_in = as_uint(head.size());
  zlib.next_out = as_zlib(out.data());
  zlib.avail_out = as_uint(out.size());
  inflate(&zlib, Z_SYNC_FLUSH);
  out.resize(zlib.total_out);
  inflateEnd(&zlib);
  return out;
}

struct DeflateWriter::State {
  State(OutputFile& output, Packing packing, int level) : file(output), buffer(kBufferBytes) {
    const int status = deflateInit2(&zlib, level, Z_DEFLATED, window_bits(packing), 8, Z_DEFAULT_STRATEGY);
    if (status != Z_OK) throw Error("out of memory while packing", Fault::kMachine);
  }
  ~State() { deflateEnd(&zlib); }

  void pump(std::span<const std::byte> bytes, int flush) {
    zlib.next_in = as_zlib(bytes.data());
    zlib.avail_in = as_uint(bytes.size());
    do {
      zlib.next_out = as_zlib(buffer.data());
      zlib.avail_out = as_uint(buffer.size());
      deflate(&zlib, flush);
      file.write(std::span(buffer).first(buffer.size() - zlib.avail_out));
    } while (zlib.avail_out == 0);
  }

  OutputFile& file;
  z_stream zlib{};
  std::vector<std::byte> buffer;
};

DeflateWriter::DeflateWriter(OutputFile& file, Packing packing, int level) {
  VOX_CHECK(level >= -1 && level <= 9, "the level of deflate is ", level, "; expected 0 to 9");
  state_ = std::make_unique<State>(file, packing, level);
}
DeflateWriter::~DeflateWriter() = default;

void DeflateWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t step = std::min(bytes.size(), size_t{1} << 24);
    state_->pump(bytes.first(step), Z_NO_FLUSH);
    bytes = bytes.subspan(step);
  }
}

void DeflateWriter::finish() {
  state_->pump({}, Z_FINISH);
}

uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t seed) {
  return static_cast<uint32_t>(crc32_z(seed, as_zlib(bytes.data()), bytes.size()));
}

}  // namespace vox
