// The voxels come first and lie behind one another, so that plain stacks are also what ImageJ and tifffile expect of a
// contiguous one, and the choice between classic TIFF and BigTIFF can wait until the size is known.
#include "io/tiff_writer.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "io/tiff_ifd.h"
#include "io/tiff_metadata.h"
#include "io/tiff_samples.h"

namespace vox::tiff {
namespace {

constexpr int64_t kStripBytes = 128 << 10;  // before packing
constexpr int64_t kBatchBytes = 16 << 20;   // packed at once, then written in order
constexpr int64_t kDataBegins = 16;         // the header of BigTIFF; classic TIFF leaves half of it unused

struct Plan {
  VolumeInfo info;
  Codec codec = Codec::kLzw;
  int level = -1;
  int predictor = 1;
  int64_t rows_per_strip = 1, strips_per_page = 1, pages = 1;

  int64_t row_bytes() const { return info.extent.x * size_of(info.dtype); }
};

Plan make_plan(const std::string& path, const VolumeInfo& info, const WriteOptions& options) {
  VOX_CHECK(info.dtype != DType::kBFloat16, path, ": TIFF has no bfloat16; convert to float32");
  VOX_CHECK(info.scale == 1 && info.offset == 0, path, ": TIFF has no place for the scale ", info.scale, " and offset ",
            info.offset, " of these voxels; convert to float32 first");
  VOX_CHECK(info.voxels() > 0, path, ": a TIFF file cannot hold an empty volume (", info.extent, ")");
  VOX_CHECK(std::max(info.extent.x, info.extent.y) <= INT32_MAX, path, ": ", info.extent, " is too wide for TIFF");
  VOX_CHECK(options.chunk.z <= 1 && (options.chunk.x == 0 || options.chunk.x == info.extent.x), path,
            ": TIFF is written in strips; expected a chunk of 1,ROWS,", info.extent.x, ", not ", options.chunk);
  Plan plan;
  plan.info = info;
  plan.codec = options.codec.empty() ? Codec::kLzw : codec_from_name(options.codec);
  plan.level = options.level;
  const bool differences = plan.codec == Codec::kDeflate || plan.codec == Codec::kZstd;
  plan.predictor = differences && is_integer(info.dtype) ? 2 : 1;
  plan.rows_per_strip = options.chunk.y > 0 ? options.chunk.y : std::max<int64_t>(1, kStripBytes / plan.row_bytes());
  plan.rows_per_strip = std::min(plan.rows_per_strip, info.extent.y);
  plan.strips_per_page = (info.extent.y + plan.rows_per_strip - 1) / plan.rows_per_strip;
  plan.pages = info.extent.z * info.channels;
  return plan;
}

struct Strip {
  const std::byte* rows = nullptr;
  int64_t count = 0;
};

Strip strip_at(const Plan& plan, const Volume& slab, int64_t number) {  // counted from the slab's first
  const Extent3& extent = slab.info.extent;
  const int64_t page = number / plan.strips_per_page, row = number % plan.strips_per_page * plan.rows_per_strip;
  const int64_t z = page / slab.info.channels, channel = page % slab.info.channels;  // channels vary fastest
  const std::byte* slice = slab.data.data() + (channel * extent.z + z) * extent.y * plan.row_bytes();
  return {slice + row * plan.row_bytes(), std::min(plan.rows_per_strip, extent.y - row)};
}

std::vector<std::byte> pack(const Plan& plan, const Strip& strip) {
  const std::span bytes(strip.rows, static_cast<size_t>(strip.count * plan.row_bytes()));
  if (plan.predictor == 1) return encode_bytes(plan.codec, bytes, plan.level);
  std::vector<std::byte> rows(bytes.begin(), bytes.end());
  difference_rows(rows.data(), strip.count, {plan.info.dtype, plan.info.extent.x, plan.predictor});
  return encode_bytes(plan.codec, rows, plan.level);
}

void write_strips(const Plan& plan, const Volume& slab, OutputFile& file, ThreadPool* pool,
                  std::vector<Piece>* pieces) {
  const int64_t count = slab.info.extent.z * slab.info.channels * plan.strips_per_page;
  const int64_t batch = std::max<int64_t>(1, kBatchBytes / (plan.rows_per_strip * plan.row_bytes()));
  for (int64_t begin = 0; begin < count; begin += batch) {
    std::vector<std::vector<std::byte>> packed(static_cast<size_t>(std::min(batch, count - begin)));
    const auto pack_one = [&](int64_t i) {
      packed[static_cast<size_t>(i)] = pack(plan, strip_at(plan, slab, begin + i));
    };
    const int64_t size = static_cast<int64_t>(packed.size());
    if (pool)
      pool->for_each(size, pack_one);
    else
      for (int64_t i = 0; i < size; ++i) pack_one(i);
    for (const auto& bytes : packed) {
      pieces->push_back({file.position(), static_cast<int64_t>(bytes.size())});
      file.write(bytes);
    }
  }
}

// One directory: entries in the order of their numbers, values that do not fit behind them.
class DirectoryWriter {
 public:
  DirectoryWriter(int64_t offset, bool big, int entries)
      : big_(big), values_at_(offset + (big ? 16 + 20 * entries : 6 + 12 * entries)), left_(entries) {
    put(entries_, static_cast<uint64_t>(entries), big ? 8 : 2);
  }

  void add(uint16_t id, uint16_t type, int size, const std::vector<uint64_t>& values) {
    std::string bytes;
    for (const uint64_t value : values) put(bytes, value, size);
    add_bytes(id, type, values.size(), bytes);
  }
  void add_short(uint16_t id, int64_t value) { add(id, 3, 2, {static_cast<uint64_t>(value)}); }
  void add_long(uint16_t id, int64_t value) { add(id, 4, 4, {static_cast<uint64_t>(value)}); }
  void add_offsets(uint16_t id, const std::vector<uint64_t>& values) {
    big_ ? add(id, 16, 8, values) : add(id, 4, 4, values);
  }
  void add_text(uint16_t id, const std::string& text) { add_bytes(id, 2, text.size() + 1, text + '\0'); }
  void add_rational(uint16_t id, const Rational& value) {
    std::string bytes;
    put(bytes, value.numerator, 4);
    put(bytes, value.denominator, 4);
    add_bytes(id, 5, 1, bytes);
  }

  std::string finish(bool last) {
    VOX_ASSERT(left_ == 0);
    const int64_t end = values_at_ + static_cast<int64_t>(values_.size());
    put(entries_, last ? 0 : static_cast<uint64_t>(end), big_ ? 8 : 4);
    return entries_ + values_;
  }

 private:
  static void put(std::string& to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i));
  }
  void add_bytes(uint16_t id, uint16_t type, size_t count, std::string bytes) {
    --left_;
    const int width = big_ ? 8 : 4;
    put(entries_, id, 2);
    put(entries_, type, 2);
    put(entries_, count, width);
    if (bytes.size() > static_cast<size_t>(width)) {
      const uint64_t place = static_cast<uint64_t>(values_at_) + values_.size();
      values_ += bytes;
      values_.resize((values_.size() + 7) / 8 * 8);
      bytes.clear();
      put(bytes, place, width);
    }
    bytes.resize(static_cast<size_t>(width));
    entries_ += bytes;
  }

  bool big_;
  int64_t values_at_;
  int left_;
  std::string entries_, values_;
};

int64_t compression_number(Codec codec) {
  switch (codec) {
    case Codec::kNone:
      return 1;
    case Codec::kLzw:
      return 5;
    case Codec::kDeflate:
      return 8;
    case Codec::kZstd:
      return 50000;
    case Codec::kPackBits:
      return 32773;
  }
  throw Error("internal error: no such codec", Fault::kBug);
}

std::string make_directory(const Plan& plan, const std::vector<Piece>& pieces, int64_t page, int64_t offset, bool big) {
  const VolumeInfo& info = plan.info;
  const bool first = page == 0, spaced = first && info.spacing.has_value();
  std::vector<uint64_t> offsets, sizes;
  for (int64_t i = page * plan.strips_per_page; i < (page + 1) * plan.strips_per_page; ++i) {
    offsets.push_back(static_cast<uint64_t>(pieces[static_cast<size_t>(i)].offset));
    sizes.push_back(static_cast<uint64_t>(pieces[static_cast<size_t>(i)].bytes));
  }
  DirectoryWriter out(offset, big, 11 + (first ? 1 : 0) + (spaced ? 3 : 0));
  out.add_long(256, info.extent.x);
  out.add_long(257, info.extent.y);
  out.add_short(258, 8 * size_of(info.dtype));
  out.add_short(259, compression_number(plan.codec));
  out.add_short(262, 1);  // black is zero
  if (first) out.add_text(270, describe(info));
  out.add_offsets(273, offsets);
  out.add_short(277, 1);
  out.add_long(278, plan.rows_per_strip);
  out.add_offsets(279, sizes);
  if (spaced) {
    out.add_rational(282, nearest_rational(1 / info.spacing->x_mm));
    out.add_rational(283, nearest_rational(1 / info.spacing->y_mm));
    out.add_short(296, 1);  // the unit stands in the description
  }
  out.add_short(317, plan.predictor);
  out.add_short(339, !is_integer(info.dtype) ? 3 : is_signed(info.dtype) ? 2 : 1);
  return out.finish(page == plan.pages - 1);
}

std::string all_directories(const Plan& plan, const std::vector<Piece>& pieces, int64_t begin, bool big) {
  std::string directories;
  for (int64_t page = 0; page < plan.pages; ++page)
    directories += make_directory(plan, pieces, page, begin + static_cast<int64_t>(directories.size()), big);
  return directories;
}

std::string make_header(int64_t first_directory, bool big) {
  std::string header = big ? std::string("II\x2b\0\x08\0\0\0", 8) : std::string("II\x2a\0", 4);
  for (int i = 0; i < (big ? 8 : 4); ++i) header += static_cast<char>(first_directory >> (8 * i));
  return header;
}

}  // namespace

void write_stack(const std::string& path, const SlabSource& source, const WriteOptions& options, ThreadPool* pool,
                 int64_t classic_limit) {
  const Plan plan = make_plan(path, source.info, options);
  OutputFile file(path);
  file.write(std::string(kDataBegins, '\0'));
  std::vector<Piece> pieces;
  pieces.reserve(static_cast<size_t>(plan.pages * plan.strips_per_page));
  each_slab(source, 1, [&](int64_t, const Volume& slab) { write_strips(plan, slab, file, pool, &pieces); });
  file.write(std::string(static_cast<size_t>(-file.position() & 7), '\0'));
  const int64_t begin = file.position();
  bool big = begin > classic_limit;
  std::string directories = all_directories(plan, pieces, begin, big);
  if (!big && begin + static_cast<int64_t>(directories.size()) > classic_limit) {
    big = true;
    directories = all_directories(plan, pieces, begin, big);
  }
  file.write(directories);
  const std::string header = make_header(begin, big);
  file.write_at(0, std::as_bytes(std::span(header)));
  file.commit();
}

}  // namespace vox::tiff
