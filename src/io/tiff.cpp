// TIFF stacks: one page per slice, read strip by strip or tile by tile. Only the pieces that a box touches are read and
// decoded; a piece that lies wholly in the box is decoded in place, without a copy.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "io/format.h"
#include "io/tiff_ifd.h"
#include "io/tiff_metadata.h"
#include "io/tiff_samples.h"
#include "io/tiff_writer.h"

namespace vox {
namespace {

using tiff::Page;
using tiff::Piece;

constexpr int64_t kJobBytes = 256 << 10;  // packed bytes that one thread reads and decodes at a time
constexpr int64_t kGapBytes = 64 << 10;   // between pieces that are still worth one read

struct Rect {  // of a page, half open
  int64_t y0, y1, x0, x1;
};

struct Job {  // consecutive pieces of one page
  int64_t page, first, count;
  std::byte* slice;  // where the page's part of the box goes
};

class TiffReader final : public VolumeReader {
 public:
  explicit TiffReader(const std::string& path) : file_(path), directory_(tiff::read_directory(file_)) {
    const tiff::StackFacts facts = tiff::stack_facts(directory_);
    if (facts.one_directory) repeat_directory(facts.images);
    VOX_CHECK(!facts.time_series, path, ": a time series (frames of slices or channels); expected one volume a file");
    const Page& first = directory_.pages.front();
    const int64_t pages = static_cast<int64_t>(directory_.pages.size());
    const bool split = facts.channels > 1 && facts.images == pages && pages % facts.channels == 0;
    info_.channels = split ? facts.channels : 1;
    info_.extent = {pages / info_.channels, first.height, first.width};
    z_step_ = facts.channel_by_channel ? 1 : info_.channels;
    channel_step_ = facts.channel_by_channel ? info_.extent.z : 1;
    info_.dtype = first.dtype;
    info_.spacing = facts.spacing;
    info_.format = "tiff";
    info_.codec = name_of(first.codec);
    info_.chunk = first.codec == Codec::kNone ? Extent3{} : Extent3{1, first.piece_height, first.piece_width};
    require_countable();
  }

  void read(const Box3& box, int64_t channel, std::byte* out, ThreadPool* pool) const override {
    VOX_ASSERT(whole(info_.extent).contains(box) && channel >= 0 && channel < info_.channels);
    if (box.empty()) return;
    const Rect rect{box.begin.y, box.end.y, box.begin.x, box.end.x};
    const int64_t slice_bytes = box.extent().y * box.extent().x * size_of(info_.dtype);
    std::vector<Job> jobs;
    for (int64_t z = box.begin.z; z < box.end.z; ++z)
      plan(z * z_step_ + channel * channel_step_, rect, out + (z - box.begin.z) * slice_bytes, jobs);
    const auto run = [&](int64_t i) { run_job(jobs[static_cast<size_t>(i)], rect); };
    const int64_t count = static_cast<int64_t>(jobs.size());
    if (pool) return pool->for_each(count, run);
    for (int64_t i = 0; i < count; ++i) run(i);
  }

 private:
  void repeat_directory(int64_t images) {
    const Page& page = directory_.pages.front();
    VOX_CHECK(page.codec == Codec::kNone && !page.tiled, file_.path(), ": its description promises ", images,
              " slices, but it has one page, and that is packed or tiled; the file is incomplete");
    tiff::repeat_page(directory_, images, file_);
  }

  void require_countable() const {
    int64_t bytes = size_of(info_.dtype);
    bool overflow = __builtin_mul_overflow(bytes, info_.channels, &bytes);
    for (int axis = 0; axis < 3; ++axis) overflow |= __builtin_mul_overflow(bytes, info_.extent[axis], &bytes);
    VOX_CHECK(!overflow, file_.path(), ": a volume of ", info_.extent, " is larger than any memory");
  }

  void plan(int64_t page_number, const Rect& rect, std::byte* slice, std::vector<Job>& jobs) const {
    const Page& page = directory_.pages[static_cast<size_t>(page_number)];
    const int64_t left = rect.x0 / page.piece_width, right = (rect.x1 - 1) / page.piece_width + 1;
    const int64_t top = rect.y0 / page.piece_height, bottom = (rect.y1 - 1) / page.piece_height + 1;
    for (int64_t row = top; row < bottom; ++row) {
      int64_t bytes = kJobBytes;  // a row of pieces starts a job, unless it continues the row above
      if (left == 0 && right == page.pieces_across() && row > top) bytes = job_bytes(page, jobs.back());
      for (int64_t column = left; column < right; ++column) {
        const int64_t piece = row * page.pieces_across() + column;
        if (bytes >= kJobBytes) {
          jobs.push_back({page_number, piece, 0, slice});
          bytes = 0;
        }
        ++jobs.back().count;
        bytes += page.pieces[static_cast<size_t>(piece)].bytes;
      }
    }
  }

  static int64_t job_bytes(const Page& page, const Job& job) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < job.count; ++i) bytes += page.pieces[static_cast<size_t>(job.first + i)].bytes;
    return bytes;
  }

  void run_job(const Job& job, const Rect& rect) const {
    const Page& page = directory_.pages[static_cast<size_t>(job.page)];
    int64_t piece = job.first;
    try {
      if (page.codec == Codec::kNone && !page.tiled) {
        for (; piece < job.first + job.count; ++piece) read_plain_strip(page, piece, rect, job.slice);
        return;
      }
      thread_local std::vector<std::byte> packed;
      const auto [begin, end] = extent_in_file(page, job);
      const bool together = end - begin <= job_bytes(page, job) + kGapBytes;
      if (together) read_packed(begin, end - begin, packed);
      for (; piece < job.first + job.count; ++piece) {
        const Piece& place = page.pieces[static_cast<size_t>(piece)];
        if (!together) read_packed(place.offset, place.bytes, packed);
        const size_t skip = together ? static_cast<size_t>(place.offset - begin) : 0;
        decode_piece(page, piece, std::span(packed).subspan(skip, static_cast<size_t>(place.bytes)), rect, job.slice);
      }
    } catch (const Error& error) {
      throw with_context(concat(file_.path(), ": page ", job.page, ", ", page.piece_name(), ' ', piece), error);
    }
  }

  static std::pair<int64_t, int64_t> extent_in_file(const Page& page, const Job& job) {
    const Piece& first = page.pieces[static_cast<size_t>(job.first)];
    int64_t begin = first.offset, end = first.offset + first.bytes;
    for (int64_t i = 1; i < job.count; ++i) {
      const Piece& piece = page.pieces[static_cast<size_t>(job.first + i)];
      begin = std::min(begin, piece.offset);
      end = std::max(end, piece.offset + piece.bytes);
    }
    return {begin, end};
  }

  void read_packed(int64_t offset, int64_t bytes, std::vector<std::byte>& packed) const {
    if (static_cast<int64_t>(packed.size()) < bytes) packed.resize(static_cast<size_t>(bytes));
    file_.read(offset, std::span(packed).first(static_cast<size_t>(bytes)));
  }

  // Plain rows need no decoding: only those of the box are read, in place where they are whole.
  void read_plain_strip(const Page& page, int64_t piece, const Rect& rect, std::byte* slice) const {
    const int64_t top = piece * page.piece_height;
    const int64_t y0 = std::max(rect.y0, top), y1 = std::min(rect.y1, top + page.piece_rows(piece));
    const int64_t offset = page.pieces[static_cast<size_t>(piece)].offset + (y0 - top) * page.row_bytes();
    const int64_t bytes = (y1 - y0) * page.row_bytes();
    const bool in_place = rect.x0 == 0 && rect.x1 == page.width;
    std::byte* target = slice + (y0 - rect.y0) * (rect.x1 - rect.x0) * size_of(page.dtype);
    std::byte* rows = in_place ? target : scratch(bytes);
    file_.read(offset, {rows, static_cast<size_t>(bytes)});
    tiff::finish_rows(rows, y1 - y0, {page.dtype, page.width, page.predictor, directory_.swapped});
    if (!in_place) copy_rows(page, rows, {y0, y1, 0, page.width}, rect, slice);
  }

  void decode_piece(const Page& page, int64_t piece, std::span<const std::byte> packed, const Rect& rect,
                    std::byte* slice) const {
    const int64_t top = piece / page.pieces_across() * page.piece_height;
    const int64_t left = piece % page.pieces_across() * page.piece_width;
    const int64_t bottom = std::min(rect.y1, top + page.piece_rows(piece));  // rows below are not decoded
    const bool in_place = top >= rect.y0 && left == rect.x0 && left + page.piece_width == rect.x1;
    const int64_t bytes = (bottom - top) * page.piece_row_bytes();
    std::byte* rows = in_place ? slice + (top - rect.y0) * page.piece_row_bytes() : scratch(bytes);
    decode_bytes(page.codec, packed, {rows, static_cast<size_t>(bytes)},
                 bottom == top + page.piece_rows(piece) ? Wanted::kAll : Wanted::kBegin);
    tiff::finish_rows(rows, bottom - top, {page.dtype, page.piece_width, page.predictor, directory_.swapped});
    if (!in_place) copy_rows(page, rows, {top, bottom, left, left + page.piece_width}, rect, slice);
  }

  static std::byte* scratch(int64_t bytes) {
    thread_local std::vector<std::byte> buffer;
    if (static_cast<int64_t>(buffer.size()) < bytes) buffer.resize(static_cast<size_t>(bytes));
    return buffer.data();
  }

  static void copy_rows(const Page& page, const std::byte* rows, const Rect& from, const Rect& rect, std::byte* slice) {
    const int64_t size = size_of(page.dtype);
    const int64_t y0 = std::max(from.y0, rect.y0), y1 = std::min(from.y1, rect.y1);
    const int64_t x0 = std::max(from.x0, rect.x0), x1 = std::min(from.x1, rect.x1);
    for (int64_t y = y0; y < y1; ++y)
      std::memcpy(slice + ((y - rect.y0) * (rect.x1 - rect.x0) + x0 - rect.x0) * size,
                  rows + ((y - from.y0) * (from.x1 - from.x0) + x0 - from.x0) * size,
                  static_cast<size_t>((x1 - x0) * size));
  }

  InputFile file_;
  tiff::Directory directory_;
  int64_t z_step_ = 1, channel_step_ = 1;  // in pages
};

bool matches(std::span<const std::byte> head, const std::filesystem::path&) {
  if (head.size() < 4) return false;
  const auto starts = [&](const char* magic) { return std::memcmp(head.data(), magic, 4) == 0; };
  return starts("II\x2a\0") || starts("MM\0\x2a") || starts("II\x2b\0") || starts("MM\0\x2b");
}

std::unique_ptr<VolumeReader> open(const std::string& path) {
  return std::make_unique<TiffReader>(path);
}

void write(const std::string& path, const Volume& volume, const WriteOptions& options, ThreadPool* pool) {
  tiff::write_stack(path, slabs_of(volume), options, pool);
}

void write_from_slabs(const std::string& path, const SlabSource& source, const WriteOptions& options,
                      ThreadPool* pool) {
  tiff::write_stack(path, source, options, pool);
}

}  // namespace

FormatEntry tiff_format() {
  FormatEntry entry{"tiff",
                    "TIFF stack, one page per slice, channels as ImageJ, OME or tifffile say; strips or tiles, LZW, "
                    "deflate, ZSTD or PackBits, BigTIFF",
                    {".tif", ".tiff"},
                    {"lzw", "none", "deflate", "zstd", "packbits"},
                    matches,
                    open,
                    write};
  entry.write_slabs = write_from_slabs;
  return entry;
}

}  // namespace vox
