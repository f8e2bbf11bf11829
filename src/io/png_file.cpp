// PNG (ISO 15948) as far as slices need it: grey or palette, not interlaced. The palette's indices are the values,
// which is what label images mean by them.
#include "io/png_file.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "io/byte_source.h"
#include "io/inflate.h"

namespace vox::png {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
constexpr int kGrey = 0, kPalette = 3;
constexpr int64_t kHeadBytes = 33, kMostExpansion = 1032;  // the latter by deflate's design

uint32_t big_endian(const std::byte* at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint32_t>(at[i]);
  return value;
}

Shape parse_head(std::span<const std::byte> head, const std::string& path) {
  VOX_CHECK(head.size() >= kHeadBytes && std::memcmp(head.data(), kSignature.data(), kSignature.size()) == 0 &&
                std::memcmp(head.data() + 12, "IHDR", 4) == 0,
            path, ": this is no PNG image, or only the begin of one");
  VOX_CHECK(crc32_of(head.subspan(12, 17)) == big_endian(head.data() + 29), path,
            ": the checksum of the PNG header is wrong; the file is damaged");
  const std::byte* fields = head.data() + 16;
  Shape shape{big_endian(fields + 4), big_endian(fields), static_cast<int>(fields[8])};
  const int colour = static_cast<int>(fields[9]), interlace = static_cast<int>(fields[12]);
  VOX_CHECK(colour == kGrey || colour == kPalette, path,
            ": this PNG has colours or transparency; expected grey values or a palette of labels");
  VOX_CHECK(interlace == 0, path, ": interlaced PNG cannot be read; save it without");
  const bool known_bits =
      shape.bits == 1 || shape.bits == 2 || shape.bits == 4 || shape.bits == 8 || (shape.bits == 16 && colour == kGrey);
  VOX_CHECK(known_bits && shape.height > 0 && shape.width > 0, path, ": the PNG header makes no sense");
  return shape;
}

int64_t row_bytes(const Shape& shape) {
  return (shape.width * shape.bits + 7) / 8;
}

// Before memory is taken for it. Sizes of 32 bits may be more than 64 together.
void require_room(const Shape& shape, int64_t packed, const std::string& path) {
  int64_t bytes = 0;
  VOX_CHECK(!__builtin_mul_overflow(shape.height, row_bytes(shape) + 1, &bytes) && bytes / kMostExpansion <= packed,
            path, ": ", packed, " bytes cannot hold an image of ", shape.height, "x", shape.width,
            "; the header is wrong, or the file was not copied completely");
}

// All IDAT chunks, one after another.
std::vector<std::byte> packed_rows(std::span<const std::byte> file, const std::string& path) {
  std::vector<std::byte> packed;
  for (size_t at = kSignature.size(); at + 12 <= file.size();) {
    const size_t length = big_endian(file.data() + at);
    VOX_CHECK(length <= file.size() - at - 12, path, ": the PNG image breaks off; was it copied completely?");
    const std::span<const std::byte> body = file.subspan(at + 4, length + 4);
    VOX_CHECK(crc32_of(body) == big_endian(file.data() + at + 8 + length), path,
              ": a checksum of the PNG image is wrong; the file is damaged");
    if (std::memcmp(body.data(), "IDAT", 4) == 0) packed.insert(packed.end(), body.begin() + 4, body.end());
    if (std::memcmp(body.data(), "IEND", 4) == 0) return packed;
    at += length + 12;
  }
  throw Error(concat(path, ": the PNG image breaks off; was it copied or downloaded completely?"));
}

uint8_t paeth(int left, int above, int corner) {
  const int guess = left + above - corner;
  const int a = std::abs(guess - left), b = std::abs(guess - above), c = std::abs(guess - corner);
  return static_cast<uint8_t>(a <= b && a <= c ? left : b <= c ? above : corner);
}

void unfilter(int filter, uint8_t* row, const uint8_t* above, int64_t bytes, int64_t step, const std::string& path) {
  VOX_CHECK(filter <= 4, path, ": the PNG rows are damaged: filter ", filter);
  for (int64_t i = 0; i < bytes; ++i) {
    const int left = i >= step ? row[i - step] : 0, up = above[i], corner = i >= step ? above[i - step] : 0;
    const int guess = filter == 0   ? 0
                      : filter == 1 ? left
                      : filter == 2 ? up
                      : filter == 3 ? (left + up) / 2
                                    : paeth(left, up, corner);
    row[i] = static_cast<uint8_t>(row[i] + guess);
  }
}

void expand(const uint8_t* row, const Shape& shape, DType dtype, std::byte* out) {
  if (shape.bits == 8 && dtype == DType::kUInt8) {
    std::memcpy(out, row, static_cast<size_t>(shape.width));
    return;
  }
  for (int64_t x = 0; x < shape.width; ++x) {
    if (shape.bits == 16) {
      const uint16_t value = static_cast<uint16_t>(row[2 * x] << 8 | row[2 * x + 1]);
      std::memcpy(out + 2 * x, &value, 2);
      continue;
    }
    const int64_t bit = x * shape.bits;
    const int shift = static_cast<int>(8 - shape.bits - bit % 8);
    out[x] = static_cast<std::byte>(row[bit / 8] >> shift & ((1 << shape.bits) - 1));
  }
}

void put_chunk(std::vector<std::byte>& file, const char* name, std::span<const std::byte> body) {
  const auto put = [&](uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) file.push_back(static_cast<std::byte>(value >> shift));
  };
  put(static_cast<uint32_t>(body.size()));
  const size_t begin = file.size();
  for (int i = 0; i < 4; ++i) file.push_back(static_cast<std::byte>(name[i]));
  file.insert(file.end(), body.begin(), body.end());
  put(crc32_of(std::span(file).subspan(begin)));
}

}  // namespace

Shape read_shape(const std::string& path) {
  const InputFile file(path);
  std::vector<std::byte> head(kHeadBytes);
  head.resize(static_cast<size_t>(file.read_some(0, head)));
  const Shape shape = parse_head(head, path);
  require_room(shape, file.size(), path);
  return shape;
}

void read_image(const std::string& path, const Shape& expected, DType dtype, std::byte* out) {
  const std::string content = read_file(path);
  const std::span<const std::byte> file = std::as_bytes(std::span(content));
  const Shape shape = parse_head(file, path);
  VOX_CHECK(shape.height == expected.height && shape.width == expected.width && shape.bits == expected.bits, path,
            ": the image is not what it was when the stack was opened");
  const std::vector<std::byte> packed = packed_rows(file, path);
  const int64_t bytes = row_bytes(shape), step = std::max(1, shape.bits / 8);
  require_room(shape, static_cast<int64_t>(packed.size()), path);
  std::vector<std::byte> rows(static_cast<size_t>(shape.height * (bytes + 1)));
  try {
    inflate_all(packed, rows);
  } catch (const Error& error) {
    throw with_context(path, error);
  }
  std::vector<uint8_t> above(static_cast<size_t>(bytes), 0);
  for (int64_t y = 0; y < shape.height; ++y, out += shape.width * size_of(dtype)) {
    uint8_t* row = reinterpret_cast<uint8_t*>(rows.data() + y * (bytes + 1));
    unfilter(row[0], row + 1, above.data(), bytes, step, path);
    std::memcpy(above.data(), row + 1, above.size());
    expand(row + 1, shape, dtype, out);
  }
}

std::vector<std::byte> encode_image(const std::byte* rows, const Shape& shape, int level) {
  const int64_t bytes = row_bytes(shape), step = shape.bits / 8;
  std::vector<std::byte> filtered(static_cast<size_t>(shape.height * (bytes + 1)));
  std::vector<uint8_t> row(static_cast<size_t>(bytes));
  for (int64_t y = 0; y < shape.height; ++y) {
    std::memcpy(row.data(), rows + y * bytes, row.size());
    if (shape.bits == 16)
      for (size_t i = 0; i + 1 < row.size(); i += 2) std::swap(row[i], row[i + 1]);
    std::byte* to = filtered.data() + y * (bytes + 1);
    to[0] = std::byte{1};  // differences to the left
    for (int64_t i = 0; i < bytes; ++i) {
      const int left = i >= step ? row[static_cast<size_t>(i - step)] : 0;
      to[1 + i] = static_cast<std::byte>(row[static_cast<size_t>(i)] - left);
    }
  }
  std::vector<std::byte> file;
  for (const char c : kSignature) file.push_back(static_cast<std::byte>(c));
  std::vector<std::byte> head;
  for (const int64_t size : {shape.width, shape.height})
    for (int shift = 24; shift >= 0; shift -= 8) head.push_back(static_cast<std::byte>(size >> shift));
  for (const int value : {shape.bits, kGrey, 0, 0, 0}) head.push_back(static_cast<std::byte>(value));
  put_chunk(file, "IHDR", head);
  put_chunk(file, "IDAT", deflate_all(filtered, DeflateKind::kZlib, level));
  put_chunk(file, "IEND", {});
  return file;
}

}  // namespace vox::png
