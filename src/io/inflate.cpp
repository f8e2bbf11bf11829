#include "io/inflate.h"

#include <zlib.h>

#include <memory>

#include "base/error.h"
#ifdef VOX_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif

namespace vox {
namespace {

using Bytes = std::span<const std::byte>;

bool is_gzip(Bytes packed) {
  return packed.size() >= 2 && packed[0] == std::byte{0x1f} && packed[1] == std::byte{0x8b};
}

constexpr size_t kMostBytes = size_t{1} << 31;  // zlib counts in 32 bits

}  // namespace

#ifdef VOX_HAVE_LIBDEFLATE
bool inflate_quickly(Bytes packed, std::span<std::byte> out) {
  thread_local const std::unique_ptr<libdeflate_decompressor, void (*)(libdeflate_decompressor*)> decoder(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  if (!decoder) return false;
  const auto decode = is_gzip(packed) ? libdeflate_gzip_decompress : libdeflate_zlib_decompress;
  return decode(decoder.get(), packed.data(), packed.size(), out.data(), out.size(), nullptr) == LIBDEFLATE_SUCCESS;
}
#else
bool inflate_quickly(Bytes, std::span<std::byte>) {
  return false;
}
#endif

void inflate_all(Bytes packed, std::span<std::byte> out) {
  if (!inflate_quickly(packed, out)) inflate_all_by_zlib(packed, out);
}

void inflate_all_by_zlib(Bytes packed, std::span<std::byte> out) {
  VOX_CHECK(packed.size() < kMostBytes && out.size() < kMostBytes, "a deflated piece of 2 GiB is too large");
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 32) != Z_OK) throw Error("out of memory while unpacking", Fault::kMachine);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ends(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  int state = inflate(&stream, Z_FINISH);
  while (state == Z_STREAM_END && stream.avail_out > 0 && is_gzip({packed.data() + stream.total_in, stream.avail_in})) {
    inflateReset(&stream);  // gzip files may hold several members
    stream.total_in = packed.size() - stream.avail_in;
    state = inflate(&stream, Z_FINISH);
  }
  VOX_CHECK(state != Z_DATA_ERROR && state != Z_NEED_DICT, "the deflate data is damaged (",
            stream.msg ? stream.msg : "it does not decode", ")");
  VOX_CHECK(stream.avail_out == 0, "the deflate data ends after ", out.size() - stream.avail_out, " of ", out.size(),
            " bytes");
  VOX_CHECK(state == Z_STREAM_END, "the deflate data does not end where it should: it is cut off, or holds more than ",
            out.size(), " bytes");
}

std::vector<std::byte> deflate_all(Bytes bytes, DeflateKind kind, int level) {
  VOX_CHECK(bytes.size() < kMostBytes, "a piece of 2 GiB is too large to deflate; use smaller chunks");
  z_stream stream{};
  const int state =
      deflateInit2(&stream, level, Z_DEFLATED, kind == DeflateKind::kGzip ? 15 + 16 : 15, 8, Z_DEFAULT_STRATEGY);
  VOX_CHECK(state == Z_OK, "zlib refuses level ", level, "; deflate knows -1 and 0 to 9");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ends(&stream, deflateEnd);
  std::vector<std::byte> packed(deflateBound(&stream, bytes.size()) + 32);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  VOX_ASSERT(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  return packed;
}

}  // namespace vox
