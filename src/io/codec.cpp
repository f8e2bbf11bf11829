#include "io/codec.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "io/inflate.h"
#ifdef VOX_HAVE_ZSTD
#include <zstd.h>
#endif

namespace vox {
namespace {

using Bytes = std::span<const std::byte>;

[[noreturn]] void throw_short(const char* codec, size_t got, size_t wanted) {
  throw Error(concat("the ", codec, " data ends after ", got, " of ", wanted, " bytes"));
}

// zlib counts in 32 bits; larger spans are fed in parts.
constexpr size_t kZlibPart = size_t{1} << 30;

void inflate_bytes(Bytes packed, std::span<std::byte> out) {
  z_stream stream{};
  VOX_CHECK(inflateInit(&stream) == Z_OK, "zlib could not be started");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ends(&stream, inflateEnd);
  size_t taken = 0, made = 0;
  int state = Z_OK;
  while (made < out.size() && state == Z_OK) {
    const size_t feed = std::min(packed.size() - taken, kZlibPart), room = std::min(out.size() - made, kZlibPart);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data() + taken));
    stream.avail_in = static_cast<uInt>(feed);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + made);
    stream.avail_out = static_cast<uInt>(room);
    state = inflate(&stream, Z_NO_FLUSH);
    taken += feed - stream.avail_in;
    made += room - stream.avail_out;
  }
  VOX_CHECK(state == Z_OK || state == Z_STREAM_END || state == Z_BUF_ERROR, "the deflate data is damaged",
            stream.msg ? concat(" (", stream.msg, ")") : "");
  if (made < out.size()) throw_short("deflate", made, out.size());
}

std::vector<std::byte> deflate_bytes(Bytes bytes, int level) {
  uLongf size = compressBound(bytes.size());
  std::vector<std::byte> packed(size);
  const int state = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                              reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), level);
  VOX_CHECK(state == Z_OK, "zlib refuses level ", level, "; deflate knows -1 and 0 to 9");
  packed.resize(size);
  return packed;
}

#ifdef VOX_HAVE_ZSTD
void zstd_decode(Bytes packed, std::span<std::byte> out) {
  thread_local const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  ZSTD_DCtx_reset(context.get(), ZSTD_reset_session_only);
  if (ZSTD_getFrameContentSize(packed.data(), packed.size()) == out.size()) {
    const size_t got = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), packed.data(), packed.size());
    VOX_CHECK(!ZSTD_isError(got), "the zstd data is damaged (", ZSTD_getErrorName(got), ")");
    if (got < out.size()) throw_short("zstd", got, out.size());
    return;
  }
  ZSTD_inBuffer input{packed.data(), packed.size(), 0};
  ZSTD_outBuffer output{out.data(), out.size(), 0};
  while (output.pos < output.size) {
    const size_t before_in = input.pos, before_out = output.pos;
    const size_t state = ZSTD_decompressStream(context.get(), &output, &input);
    VOX_CHECK(!ZSTD_isError(state), "the zstd data is damaged (", ZSTD_getErrorName(state), ")");
    if (input.pos == before_in && output.pos == before_out) throw_short("zstd", output.pos, output.size);
  }
}

std::vector<std::byte> zstd_encode(Bytes bytes, int level) {
  std::vector<std::byte> packed(ZSTD_compressBound(bytes.size()));
  const size_t size =
      ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), level < 0 ? ZSTD_CLEVEL_DEFAULT : level);
  VOX_CHECK(!ZSTD_isError(size), "zstd could not pack (", ZSTD_getErrorName(size), ")");
  packed.resize(size);
  return packed;
}
#else
void zstd_decode(Bytes, std::span<std::byte>) {
  throw Error("zstd data cannot be read: this build has no zstd; install libzstd-dev and build again");
}
std::vector<std::byte> zstd_encode(Bytes, int) {
  throw Error("zstd data cannot be written: this build has no zstd; install libzstd-dev and build again");
}
#endif

void packbits_decode(Bytes packed, std::span<std::byte> out) {
  size_t at = 0, made = 0;
  while (made < out.size()) {
    if (at >= packed.size()) throw_short("PackBits", made, out.size());
    const int head = static_cast<signed char>(packed[at++]);
    if (head == -128) continue;
    const size_t count = std::min(static_cast<size_t>(head >= 0 ? head + 1 : 1 - head), out.size() - made);
    const size_t needed = head >= 0 ? count : 1;
    if (packed.size() - at < needed) throw_short("PackBits", made, out.size());
    if (head >= 0)
      std::memcpy(out.data() + made, packed.data() + at, count);
    else
      std::memset(out.data() + made, static_cast<int>(packed[at]), count);
    at += needed;
    made += count;
  }
}

size_t run_length(Bytes bytes, size_t from) {  // of equal bytes, at most 128
  size_t length = 1;
  while (length < 128 && from + length < bytes.size() && bytes[from + length] == bytes[from]) ++length;
  return length;
}

std::vector<std::byte> packbits_encode(Bytes bytes) {
  std::vector<std::byte> packed;
  for (size_t at = 0; at < bytes.size();) {
    const size_t run = run_length(bytes, at);
    if (run >= 2) {
      packed.push_back(static_cast<std::byte>(1 - static_cast<int>(run)));
      packed.push_back(bytes[at]);
      at += run;
      continue;
    }
    size_t end = at + 1;
    while (end < bytes.size() && end - at < 128 && run_length(bytes, end) < 3) ++end;
    packed.push_back(static_cast<std::byte>(end - at - 1));
    packed.insert(packed.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  bytes.begin() + static_cast<std::ptrdiff_t>(end));
    at = end;
  }
  return packed;
}

constexpr Codec kCodecs[] = {Codec::kNone, Codec::kLzw, Codec::kDeflate, Codec::kZstd, Codec::kPackBits};

}  // namespace

const char* name_of(Codec codec) {
  switch (codec) {
    case Codec::kNone:
      return "none";
    case Codec::kLzw:
      return "lzw";
    case Codec::kDeflate:
      return "deflate";
    case Codec::kZstd:
      return "zstd";
    case Codec::kPackBits:
      return "packbits";
  }
  throw Error("internal error: no such codec", Fault::kBug);
}

Codec codec_from_name(const std::string& name) {
  std::vector<std::string> known;
  for (const Codec codec : kCodecs) {
    if (name == name_of(codec)) return codec;
    known.emplace_back(name_of(codec));
  }
  throw Error(concat("unknown codec \"", name, "\"; known: ", join(known, ", ")));
}

int64_t max_expansion(Codec codec) {
  switch (codec) {
    case Codec::kNone:
      return 1;
    case Codec::kLzw:
      return 2731;  // a string of 4096 bytes from 12 bits
    case Codec::kDeflate:
      return 1032;  // 258 bytes from 2 bits
    case Codec::kZstd:
      return 131072;  // a block of 128 KiB of one byte; its header counted as one byte to be safe
    case Codec::kPackBits:
      return 64;  // 128 bytes from 2
  }
  throw Error("internal error: no such codec", Fault::kBug);
}

void decode_bytes(Codec codec, std::span<const std::byte> packed, std::span<std::byte> out, Wanted wanted) {
  switch (codec) {
    case Codec::kNone:
      if (packed.size() < out.size()) throw_short("plain", packed.size(), out.size());
      if (!out.empty()) std::memcpy(out.data(), packed.data(), out.size());
      return;
    case Codec::kLzw:
      return lzw_decode(packed, out);
    case Codec::kDeflate:
      if (wanted == Wanted::kAll && inflate_quickly(packed, out)) return;
      return inflate_bytes(packed, out);
    case Codec::kZstd:
      return zstd_decode(packed, out);
    case Codec::kPackBits:
      return packbits_decode(packed, out);
  }
}

std::vector<std::byte> encode_bytes(Codec codec, std::span<const std::byte> bytes, int level) {
  switch (codec) {
    case Codec::kNone:
      return {bytes.begin(), bytes.end()};
    case Codec::kLzw:
      return lzw_encode(bytes);
    case Codec::kDeflate:
      return deflate_bytes(bytes, level);
    case Codec::kZstd:
      return zstd_encode(bytes, level);
    case Codec::kPackBits:
      return packbits_encode(bytes);
  }
  throw Error("internal error: no such codec", Fault::kBug);
}

}  // namespace vox
