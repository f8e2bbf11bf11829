#include "report/png.h"

#include <zlib.h>

#include <array>

#include "base/error.h"

namespace vox {
namespace {

void append_big_endian(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}

void append_chunk(std::string& out, const std::string& kind, const std::string& data) {
  append_big_endian(out, static_cast<uint32_t>(data.size()));
  const std::string body = kind + data;
  out += body;
  append_big_endian(out, static_cast<uint32_t>(
                             crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()))));
}

char colour_type(int64_t channels) {
  constexpr std::array<char, 5> kTypes{-1, 0, 4, 2, 6};  // gray, gray + alpha, RGB, RGBA by number of channels
  VOX_ASSERT(channels >= 1 && channels <= 4);
  return kTypes[static_cast<size_t>(channels)];
}

// Each row as its difference from the row above: slices of volumes change slowly, and this packs them well.
std::string filtered_rows(const Image& image) {
  constexpr char kUp = 2;
  const size_t row_bytes = static_cast<size_t>(image.width * image.channels);
  std::string rows;
  rows.reserve((row_bytes + 1) * static_cast<size_t>(image.height));
  for (size_t y = 0; y < static_cast<size_t>(image.height); ++y) {
    rows += kUp;
    const uint8_t* row = image.pixels.data() + y * row_bytes;
    for (size_t i = 0; i < row_bytes; ++i) rows += static_cast<char>(row[i] - (y ? row[i - row_bytes] : 0));
  }
  return rows;
}

std::string deflate_all(const std::string& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string packed(size, '\0');
  const int result = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uLong>(bytes.size()), 6);
  VOX_ASSERT(result == Z_OK);
  packed.resize(size);
  return packed;
}

}  // namespace

std::string encode_png(const Image& image) {
  VOX_ASSERT(image.width > 0 && image.height > 0);
  VOX_ASSERT(static_cast<int64_t>(image.pixels.size()) == image.width * image.height * image.channels);
  std::string header;
  append_big_endian(header, static_cast<uint32_t>(image.width));
  append_big_endian(header, static_cast<uint32_t>(image.height));
  header += {8, colour_type(image.channels), 0, 0, 0};  // bits, colours, deflate, standard filters, not interlaced
  std::string png("\x89PNG\r\n\x1a\n", 8);
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", deflate_all(filtered_rows(image)));
  append_chunk(png, "IEND", "");
  return png;
}

}  // namespace vox
