#include "io/tiff_ifd.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>

#include "base/error.h"

namespace vox::tiff {
namespace {

enum TagId : uint16_t {
  kSubfileType = 254,
  kWidth = 256,
  kHeight = 257,
  kBits = 258,
  kCompression = 259,
  kFillOrder = 266,
  kDescription = 270,
  kStripOffsets = 273,
  kSamples = 277,
  kRowsPerStrip = 278,
  kStripBytes = 279,
  kXResolution = 282,
  kYResolution = 283,
  kResolutionUnit = 296,
  kPredictor = 317,
  kTileWidth = 322,
  kTileHeight = 323,
  kTileOffsets = 324,
  kTileBytes = 325,
  kSampleFormat = 339,
  kImageDepth = 32997,
};

constexpr uint64_t kMaxTags = 4096;  // files in the wild have below a hundred
constexpr int64_t kMaxSide = std::numeric_limits<int32_t>::max();

int64_t size_of_type(uint64_t type) {  // 0: unknown
  constexpr int8_t sizes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8};
  return type < std::size(sizes) ? sizes[type] : 0;
}

// Numbers anywhere in the file, through one block that is read ahead: a directory and its arrays lie close together.
class Numbers {
 public:
  explicit Numbers(const InputFile& file) : file_(file), block_(kBlock) {}

  uint64_t at(int64_t offset, int64_t bytes) {
    if (offset < begin_ || offset + bytes > begin_ + held_) fetch(offset, bytes);
    uint64_t value = 0;
    const auto* from = reinterpret_cast<const uint8_t*>(block_.data()) + (offset - begin_);
    for (int64_t i = 0; i < bytes; ++i) value |= uint64_t{from[i]} << (8 * (big_endian ? bytes - 1 - i : i));
    return value;
  }
  bool big_endian = false;

 private:
  void fetch(int64_t offset, int64_t bytes) {
    begin_ = offset;
    held_ = file_.read_some(offset, block_);
    VOX_CHECK(held_ >= bytes, file_.path(), ": the file ends inside a directory, at byte ", file_.size(),
              "; was it copied or downloaded completely?");
  }

  static constexpr size_t kBlock = 4096;
  const InputFile& file_;
  std::vector<std::byte> block_;
  int64_t begin_ = 0, held_ = 0;
};

struct Tag {
  uint16_t id = 0, type = 0;
  int64_t count = 0, offset = 0;  // where the values lie; all of them inside the file
};

class Parser {
 public:
  explicit Parser(const InputFile& file) : file_(file), numbers_(file) {}

  Directory run() {
    int64_t next = read_header();
    std::unordered_set<int64_t> seen;
    for (number_ = 0; next != 0; ++number_) {
      VOX_CHECK(seen.insert(next).second, where(), "the list of pages runs in a circle; the file is damaged");
      const int64_t link = read_tags(next);
      next = offset_at(link);
      if ((number_at(kSubfileType, 0) & 1) == 0) add_page();
    }
    VOX_CHECK(!result_.pages.empty(), file_.path(), ": the TIFF file has no page");
    return std::move(result_);
  }

 private:
  std::string where() const { return concat(file_.path(), ": page ", number_, ": "); }

  int64_t read_header() {
    std::byte head[2];
    file_.read(0, head);
    numbers_.big_endian = head[0] == std::byte{'M'};
    result_.swapped = numbers_.big_endian != (std::endian::native == std::endian::big);
    const uint64_t version = numbers_.at(2, 2);
    VOX_CHECK(head[0] == head[1] && (numbers_.big_endian || head[0] == std::byte{'I'}) &&
                  (version == 42 || (version == 43 && numbers_.at(4, 2) == 8)),
              file_.path(), ": this is no TIFF file");
    big_ = version == 43;
    return offset_at(big_ ? 8 : 4);
  }

  int64_t offset_at(int64_t at) {
    const uint64_t offset = numbers_.at(at, big_ ? 8 : 4);
    VOX_CHECK(offset < static_cast<uint64_t>(file_.size()), where(), "it should follow at byte ", offset,
              ", but the file has only ", file_.size(), " bytes; was it copied or downloaded completely?");
    return static_cast<int64_t>(offset);
  }

  int64_t read_tags(int64_t at) {  // returns where the link to the next directory lies
    tags_.clear();
    const int64_t head = big_ ? 8 : 2, entry = big_ ? 20 : 12;
    const uint64_t count = numbers_.at(at, head);
    VOX_CHECK(count <= static_cast<uint64_t>((file_.size() - at) / entry) && count <= kMaxTags, where(),
              "its directory claims ", count, " entries, more than can be; the file is truncated or damaged");
    for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) read_tag(at + head + i * entry);
    return at + head + static_cast<int64_t>(count) * entry;
  }

  void read_tag(int64_t at) {
    Tag tag;
    tag.id = static_cast<uint16_t>(numbers_.at(at, 2));
    tag.type = static_cast<uint16_t>(numbers_.at(at + 2, 2));
    const int64_t width = big_ ? 8 : 4, size = size_of_type(tag.type);
    const uint64_t count = numbers_.at(at + 4, width);
    if (size == 0) return;  // a type from after BigTIFF: readers must skip what they do not know
    VOX_CHECK(count <= static_cast<uint64_t>(file_.size() / size), where(), "tag ", tag.id, " claims ", count,
              " values, more than the file can hold; the file is truncated or damaged");
    tag.count = static_cast<int64_t>(count);
    tag.offset = at + 4 + width;
    if (tag.count * size > width) {
      const uint64_t offset = numbers_.at(tag.offset, width);
      VOX_CHECK(offset <= static_cast<uint64_t>(file_.size() - tag.count * size), where(), "the values of tag ", tag.id,
                " lie beyond the end of the file; was it copied or downloaded completely?");
      tag.offset = static_cast<int64_t>(offset);
    }
    tags_.push_back(tag);
  }

  const Tag* find(uint16_t id) const {
    const auto found = std::find_if(tags_.begin(), tags_.end(), [&](const Tag& tag) { return tag.id == id; });
    return found == tags_.end() || found->count == 0 ? nullptr : &*found;
  }

  int64_t value(const Tag& tag, int64_t index) {
    const bool whole_number =
        tag.type == 1 || tag.type == 3 || tag.type == 4 || tag.type == 13 || tag.type == 16 || tag.type == 18;
    VOX_CHECK(whole_number, where(), "tag ", tag.id, " has type ", tag.type, ", a whole number was expected");
    const int64_t size = size_of_type(tag.type);
    const uint64_t number = numbers_.at(tag.offset + index * size, size);
    VOX_CHECK(number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), where(), "tag ", tag.id, " is ",
              number, ", which cannot be");
    return static_cast<int64_t>(number);
  }

  int64_t number_at(uint16_t id, int64_t otherwise) {
    const Tag* tag = find(id);
    return tag ? value(*tag, 0) : otherwise;
  }
  int64_t required(uint16_t id, const char* name) {
    const Tag* tag = find(id);
    VOX_CHECK(tag, where(), "it has no ", name, " (tag ", id, "); the file is damaged or no image");
    return value(*tag, 0);
  }
  int64_t side(uint16_t id, const char* name) {
    const int64_t size = required(id, name);
    VOX_CHECK(size >= 1 && size <= kMaxSide, where(), "its ", name, " is ", size, ", expected 1 to ", kMaxSide);
    return size;
  }
  double rational(uint16_t id) {
    const Tag* tag = find(id);
    if (!tag || tag->type != 5) return 0;
    const double denominator = static_cast<double>(numbers_.at(tag->offset + 4, 4));
    return denominator == 0 ? 0 : static_cast<double>(numbers_.at(tag->offset, 4)) / denominator;
  }

  void add_page() {
    Page page;
    page.width = side(kWidth, "width");
    page.height = side(kHeight, "height");
    refuse_what_is_not_a_slice();
    page.dtype = read_dtype();
    page.codec = read_codec();
    page.predictor = read_predictor(page);
    read_geometry(page);
    read_pieces(page);
    if (result_.pages.empty()) {
      read_description();
    } else {
      require_like_first(page);
    }
    result_.pages.push_back(std::move(page));
  }

  void refuse_what_is_not_a_slice() {
    const int64_t samples = number_at(kSamples, 1), depth = number_at(kImageDepth, 1);
    VOX_CHECK(samples == 1, where(), "it has ", samples,
              " samples per pixel (a colour image?); expected 1, one grey value or label per voxel");
    VOX_CHECK(number_at(kFillOrder, 1) == 1, where(), "its bits are stored in reverse (FillOrder 2), not supported");
    VOX_CHECK(depth == 1, where(), "it holds ", depth, " slices in one page (ImageDepth); expected one page per slice");
  }

  DType read_dtype() {
    const int64_t bits = number_at(kBits, 1), format = number_at(kSampleFormat, 1);
    VOX_CHECK(bits != 1, where(), "it is a 1-bit image, not supported; convert it to 8 bits");
    if (format == 3) {
      if (bits == 32) return DType::kFloat32;
      if (bits == 64) return DType::kFloat64;
    } else if (format == 2) {
      if (bits == 8) return DType::kInt8;
      if (bits == 16) return DType::kInt16;
      if (bits == 32) return DType::kInt32;
    } else if (format == 1 || format == 4) {  // 4: undefined, which all readers take as unsigned
      if (bits == 8) return DType::kUInt8;
      if (bits == 16) return DType::kUInt16;
      if (bits == 32) return DType::kUInt32;
    }
    const char* kind = format == 3 ? "floating-point" : format == 2 ? "signed" : format == 1 ? "unsigned" : "unusual";
    throw Error(concat(where(), "its samples are ", kind, " with ", bits,
                       " bits, not supported; expected integers of 8, 16 or 32 bits, or floats of 32 or 64"));
  }

  Codec read_codec() {
    const int64_t compression = number_at(kCompression, 1);
    switch (compression) {
      case 1:
        return Codec::kNone;
      case 5:
        return Codec::kLzw;
      case 8:
      case 32946:
        return Codec::kDeflate;
      case 50000:
        return Codec::kZstd;
      case 32773:
        return Codec::kPackBits;
    }
    throw Error(concat(where(), "compression ", compression,
                       " is not supported; save it with none, LZW, deflate, ZSTD or PackBits"));
  }

  int read_predictor(const Page& page) {
    const int64_t predictor = page.codec == Codec::kNone ? 1 : number_at(kPredictor, 1);
    VOX_CHECK(predictor >= 1 && predictor <= 3, where(), "predictor ", predictor, " is unknown; expected 1, 2 or 3");
    VOX_CHECK(predictor != 3 || !is_integer(page.dtype), where(),
              "the floating-point predictor is set, but samples are ", name_of(page.dtype));
    return static_cast<int>(predictor);
  }

  void read_geometry(Page& page) {
    page.tiled = find(kTileWidth) || find(kTileOffsets);
    if (page.tiled) {
      page.piece_width = side(kTileWidth, "tile width");
      page.piece_height = side(kTileHeight, "tile height");
    } else {
      const int64_t rows = number_at(kRowsPerStrip, page.height);
      VOX_CHECK(rows >= 1, where(), "it has ", rows, " rows per strip, expected at least 1");
      page.piece_width = page.width;
      page.piece_height = std::min(rows, page.height);
    }
  }

  void read_pieces(Page& page) {
    const Tag* offsets = find(page.tiled ? kTileOffsets : kStripOffsets);
    const Tag* sizes = find(page.tiled ? kTileBytes : kStripBytes);
    const int64_t expected = page.pieces_across() * page.pieces_down();  // both below 2^31
    VOX_CHECK(offsets && (sizes || page.codec == Codec::kNone), where(), "it does not say where its ",
              page.piece_name(), "s lie; the file is damaged");
    const int64_t found = sizes ? std::min(offsets->count, sizes->count) : offsets->count;
    VOX_CHECK(found >= expected, where(), "it has ", found, ' ', page.piece_name(), "s, but its size of ", page.height,
              'x', page.width, " needs ", expected);
    page.pieces.resize(static_cast<size_t>(expected));
    for (int64_t i = 0; i < expected; ++i) page.pieces[static_cast<size_t>(i)].offset = value(*offsets, i);
    for (int64_t i = 0; i < expected; ++i) read_piece_size(page, i, sizes);
  }

  void read_piece_size(Page& page, int64_t index, const Tag* sizes) {
    Piece& piece = page.pieces[static_cast<size_t>(index)];
    int64_t decoded = 0;
    const bool overflow = __builtin_mul_overflow(page.piece_row_bytes(), page.piece_rows(index), &decoded);
    piece.bytes = sizes ? value(*sizes, index) : decoded;
    if (page.codec == Codec::kNone && !overflow) piece.bytes = std::min(piece.bytes, decoded);
    VOX_CHECK(piece.bytes <= file_.size() && piece.offset <= file_.size() - piece.bytes, where(), page.piece_name(),
              ' ', index, " lies at bytes ", piece.offset, " to ", piece.offset, '+', piece.bytes,
              ", but the file has only ", file_.size(), "; was it copied or downloaded completely?");
    const int64_t most = max_expansion(page.codec);
    VOX_CHECK(!overflow && decoded / most <= piece.bytes && (piece.bytes > 0), where(), page.piece_name(), ' ', index,
              " has ", piece.bytes, " bytes in the file, too few for the ", page.piece_rows(index), 'x',
              page.piece_width, ' ', name_of(page.dtype), " pixels that it should hold");
    used_ += piece.bytes;
    VOX_CHECK(used_ <= file_.size(), where(), "the ", page.piece_name(),
              "s overlap: together they claim more bytes than the file has; it is damaged");
  }

  void read_description() {
    if (const Tag* tag = find(kDescription); tag && tag->type == 2) {
      result_.description.resize(static_cast<size_t>(tag->count));
      file_.read(tag->offset, std::as_writable_bytes(std::span(result_.description)));
      result_.description.resize(std::strlen(result_.description.c_str()));
    }
    result_.x_resolution = rational(kXResolution);
    result_.y_resolution = rational(kYResolution);
    result_.resolution_unit = static_cast<int>(std::clamp<int64_t>(number_at(kResolutionUnit, 2), 1, 3));
  }

  void require_like_first(const Page& page) const {
    const Page& first = result_.pages.front();
    VOX_CHECK(page.width == first.width && page.height == first.height, where(), "it is ", page.height, 'x', page.width,
              ", but the first page is ", first.height, 'x', first.width, "; all slices of a volume must be alike");
    VOX_CHECK(page.dtype == first.dtype, where(), "its type is ", name_of(page.dtype), ", but the first page is ",
              name_of(first.dtype), "; all slices of a volume must be alike");
  }

  const InputFile& file_;
  Numbers numbers_;
  bool big_ = false;
  int64_t number_ = 0;  // of the page being read
  int64_t used_ = 0;    // bytes that pieces have claimed so far
  std::vector<Tag> tags_;
  Directory result_;
};

}  // namespace

Directory read_directory(const InputFile& file) {
  VOX_CHECK(file.size() >= 8, file.path(), ": this is no TIFF file: it has only ", file.size(), " bytes");
  return Parser(file).run();
}

void repeat_page(Directory& directory, int64_t count, const InputFile& file) {
  VOX_ASSERT(directory.pages.size() == 1);
  Page page = directory.pages.front();
  const int64_t begin = page.pieces.front().offset;
  int64_t bytes = 0, total = 0;
  const bool overflow =
      __builtin_mul_overflow(page.row_bytes(), page.height, &bytes) || __builtin_mul_overflow(bytes, count, &total);
  VOX_CHECK(!overflow && total <= file.size() - begin, file.path(), ": its description promises ", count,
            " slices behind one another from byte ", begin, ", more than its ", file.size(),
            " bytes can hold; was it copied or downloaded completely?");
  page.piece_height = page.height;
  directory.pages.clear();
  for (int64_t i = 0; i < count; ++i) {
    page.pieces = {{begin + i * bytes, bytes}};
    directory.pages.push_back(page);
  }
}

}  // namespace vox::tiff
