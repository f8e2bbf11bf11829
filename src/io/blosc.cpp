#include "io/blosc.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "io/codec.h"
#include "io/inflate.h"
#include "io/lz4_block.h"
#ifdef VOX_HAVE_BLOSC
#include <blosc.h>
#endif

namespace vox {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kHeaderBytes = 16;
constexpr int64_t kMostSplits = 16, kLeastSplitBytes = 128;
enum Flag : int { kShuffle = 1, kPlain = 2, kBitShuffle = 4, kOneStream = 16 };
enum Compressor : int { kBloscLz = 0, kLz4 = 1, kSnappy = 2, kZlib = 3, kZstd = 4 };

int32_t load_int32(Bytes bytes, size_t at) {
  VOX_CHECK(at + 4 <= bytes.size(), "the blosc frame breaks off");
  int32_t value;
  std::memcpy(&value, bytes.data() + at, 4);
  return value;
}

struct Frame {
  int flags = 0, compressor = 0;
  int64_t type_size = 1, bytes = 0, block = 0, packed = 0;
  int64_t blocks() const { return (bytes + block - 1) / block; }
};

Frame parse_frame(Bytes packed) {
  VOX_CHECK(packed.size() >= kHeaderBytes, "a blosc frame has a header of 16 bytes, but there are only ",
            packed.size());
  const int version = static_cast<int>(packed[0]);
  VOX_CHECK(version == 1 || version == 2, "blosc frames of version ", version, " are unknown; known are 1 and 2");
  Frame frame;
  frame.flags = static_cast<int>(packed[2]);
  frame.compressor = frame.flags >> 5;
  frame.type_size = std::max(1, static_cast<int>(packed[3]));
  frame.bytes = load_int32(packed, 4);
  frame.block = load_int32(packed, 8);
  frame.packed = load_int32(packed, 12);
  VOX_CHECK(frame.bytes >= 0 && frame.packed >= 0 && frame.packed <= static_cast<int64_t>(packed.size()) &&
                (frame.bytes == 0 || (frame.block > 0 && frame.block <= frame.bytes)),
            "the header of the blosc frame makes no sense, or the frame breaks off");
  return frame;
}

void decode_stream(const Frame& frame, Bytes packed, std::span<std::byte> out) {
  if (packed.size() == out.size()) {
    std::memcpy(out.data(), packed.data(), out.size());
    return;
  }
  switch (frame.compressor) {
    case kLz4:
      return lz4_decode(packed, out);
    case kZlib:
      return inflate_all(packed, out);
    case kZstd:
      return decode_bytes(Codec::kZstd, packed, out);
    default:
      throw Error(concat("the blosc frame is packed by ", frame.compressor == kBloscLz ? "blosclz" : "snappy",
                         ", which this build cannot unpack; use lz4 or zstd inside blosc"));
  }
}

void bit_unshuffle(Bytes from, std::byte* to, int64_t type_size) {
  const int64_t count = static_cast<int64_t>(from.size()) / type_size;
  if (count % 8 != 0) {  // blosc leaves such a block as it is
    std::memcpy(to, from.data(), from.size());
    return;
  }
  const int64_t row = count / 8;
  for (int64_t b = 0; b < type_size; ++b) {
    for (int64_t group = 0; group < row; ++group) {
      uint64_t bits = 0;  // byte k: bit k of eight elements
      for (int64_t k = 0; k < 8; ++k)
        bits |= static_cast<uint64_t>(from[static_cast<size_t>((b * 8 + k) * row + group)]) << (8 * k);
      // 8x8 bit transpose (Warren, Hacker's Delight, 7-3)
      uint64_t t = (bits ^ (bits >> 7)) & 0x00AA00AA00AA00AA;
      bits ^= t ^ (t << 7);
      t = (bits ^ (bits >> 14)) & 0x0000CCCC0000CCCC;
      bits ^= t ^ (t << 14);
      t = (bits ^ (bits >> 28)) & 0x00000000F0F0F0F0;
      bits ^= t ^ (t << 28);
      for (int64_t k = 0; k < 8; ++k) to[(group * 8 + k) * type_size + b] = static_cast<std::byte>(bits >> (8 * k));
    }
  }
  const size_t done = static_cast<size_t>(count * type_size);
  std::memcpy(to + done, from.data() + done, from.size() - done);
}

void decode_block(const Frame& frame, Bytes packed, int64_t number, std::span<std::byte> out) {
  const bool last_and_short = out.size() < static_cast<size_t>(frame.block);
  const int64_t bytes = static_cast<int64_t>(out.size());
  const bool split = (frame.flags & kOneStream) == 0 && frame.type_size <= kMostSplits &&
                     bytes / frame.type_size >= kLeastSplitBytes && !last_and_short;
  const int64_t streams = split ? frame.type_size : 1, stream_bytes = bytes / streams;
  const bool byte_shuffled = (frame.flags & kShuffle) != 0 && frame.type_size > 1;
  const bool bit_shuffled = (frame.flags & kBitShuffle) != 0 && bytes >= frame.type_size;
  thread_local std::vector<std::byte> scratch;
  if (scratch.size() < out.size()) scratch.resize(out.size());
  std::byte* target = byte_shuffled || bit_shuffled ? scratch.data() : out.data();

  const int32_t start = load_int32(packed, kHeaderBytes + 4 * static_cast<size_t>(number));
  VOX_CHECK(start >= 0, "the blosc frame is damaged: block ", number, " begins at ", start);
  size_t at = static_cast<size_t>(start);
  for (int64_t i = 0; i < streams; ++i) {
    const int32_t length = load_int32(packed, at);
    at += 4;
    VOX_CHECK(length > 0 && at + static_cast<size_t>(length) <= packed.size(),
              "the blosc frame is damaged: a stream of block ", number, " claims ", length, " bytes");
    decode_stream(frame, packed.subspan(at, static_cast<size_t>(length)),
                  {target + i * stream_bytes, static_cast<size_t>(stream_bytes)});
    at += static_cast<size_t>(length);
  }
  if (byte_shuffled)
    unshuffle_bytes({scratch.data(), out.size()}, out.data(), frame.type_size);
  else if (bit_shuffled)
    bit_unshuffle({scratch.data(), out.size()}, out.data(), frame.type_size);
}

#ifdef VOX_HAVE_BLOSC
bool decode_by_library(const Frame& frame, Bytes packed, std::span<std::byte> out) {
  if (frame.compressor != kBloscLz) return false;
  size_t bytes = 0;
  VOX_CHECK(blosc_cbuffer_validate(packed.data(), packed.size(), &bytes) == 0 && bytes == out.size(),
            "the blosc frame is damaged");
  const int got = blosc_decompress_ctx(packed.data(), out.data(), out.size(), 1);
  VOX_CHECK(got == static_cast<int>(out.size()), "the blosc frame is damaged");
  return true;
}
#else
bool decode_by_library(const Frame&, Bytes, std::span<std::byte>) {
  return false;
}
#endif

}  // namespace

void blosc_decode(Bytes packed, std::span<std::byte> out, const ByteRange& wanted) {
  const Frame frame = parse_frame(packed);
  VOX_CHECK(frame.bytes == static_cast<int64_t>(out.size()), "the blosc frame holds ", frame.bytes, " bytes, but ",
            out.size(), " are expected");
  packed = packed.first(static_cast<size_t>(frame.packed));
  if (out.empty()) return;
  if ((frame.flags & kPlain) != 0) {
    VOX_CHECK(packed.size() >= kHeaderBytes + out.size(), "the blosc frame breaks off");
    std::memcpy(out.data(), packed.data() + kHeaderBytes, out.size());
    return;
  }
  if (decode_by_library(frame, packed, out)) return;
  const int64_t last = (std::min(wanted.end, frame.bytes) + frame.block - 1) / frame.block;
  for (int64_t block = wanted.begin / frame.block; block < last; ++block) {
    const int64_t begin = block * frame.block;
    const int64_t bytes = std::min(frame.block, frame.bytes - begin);
    decode_block(frame, packed, block, out.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes)));
  }
}

std::vector<std::byte> blosc_encode(Bytes bytes, int64_t type_size) {
  constexpr size_t kBlock = size_t{256} << 10;  // a multiple of every type's size
  VOX_CHECK(bytes.size() <= (size_t{1} << 31) - 17, "a blosc frame holds at most 2 GiB; use smaller chunks");
  const size_t block = std::min(kBlock, bytes.size()), blocks = block == 0 ? 0 : (bytes.size() + block - 1) / block;
  const int flags = kOneStream | kLz4 << 5 | (type_size > 1 ? kShuffle : 0);
  std::vector<std::byte> frame(kHeaderBytes + 4 * blocks), shuffled(block);
  const auto put = [&](size_t at, size_t value) {
    const uint32_t word = static_cast<uint32_t>(value);
    std::memcpy(frame.data() + at, &word, 4);
  };
  for (size_t i = 0; i < blocks; ++i) {
    const Bytes part = bytes.subspan(i * block, std::min(block, bytes.size() - i * block));
    shuffle_bytes(part, shuffled.data(), type_size);
    const Bytes plain(shuffled.data(), part.size());
    const std::vector<std::byte> packed = lz4_encode(plain);
    const Bytes stream = packed.size() < plain.size() ? Bytes(packed) : plain;  // equal sizes mean: not packed
    put(kHeaderBytes + 4 * i, frame.size());
    frame.resize(frame.size() + 4);
    put(frame.size() - 4, stream.size());
    frame.insert(frame.end(), stream.begin(), stream.end());
  }
  frame[0] = std::byte{2};
  frame[1] = std::byte{1};
  frame[2] = static_cast<std::byte>(flags);
  frame[3] = static_cast<std::byte>(type_size);
  put(4, bytes.size());
  put(8, block);
  put(12, frame.size());
  return frame;
}

namespace {

// Sixteen elements of two bytes at a time; returns how many were done.
int64_t unshuffle_pairs(const std::byte* from, std::byte* to, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + count + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i), _mm_unpacklo_epi8(low, high));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i + 16), _mm_unpackhi_epi8(low, high));
  }
  return i;
}

int64_t unshuffle_fours(const std::byte* from, std::byte* to, int64_t count) {
  int64_t i = 0;
  const auto plane = [&](int64_t b) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + b * count + i)); };
  const auto put = [&](int64_t offset, __m128i value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4 * i + offset), value);
  };
  for (; i + 16 <= count; i += 16) {
    const __m128i b0 = plane(0), b1 = plane(1), b2 = plane(2), b3 = plane(3);
    const __m128i low01 = _mm_unpacklo_epi8(b0, b1), high01 = _mm_unpackhi_epi8(b0, b1);
    const __m128i low23 = _mm_unpacklo_epi8(b2, b3), high23 = _mm_unpackhi_epi8(b2, b3);
    put(0, _mm_unpacklo_epi16(low01, low23));
    put(16, _mm_unpackhi_epi16(low01, low23));
    put(32, _mm_unpacklo_epi16(high01, high23));
    put(48, _mm_unpackhi_epi16(high01, high23));
  }
  return i;
}

}  // namespace

void unshuffle_bytes(Bytes from, std::byte* to, int64_t type_size) {
  const int64_t count = static_cast<int64_t>(from.size()) / type_size;
  const int64_t done = type_size == 2   ? unshuffle_pairs(from.data(), to, count)
                       : type_size == 4 ? unshuffle_fours(from.data(), to, count)
                                        : 0;
  for (int64_t b = 0; b < type_size; ++b)
    for (int64_t i = done; i < count; ++i) to[i * type_size + b] = from[static_cast<size_t>(b * count + i)];
  const size_t whole = static_cast<size_t>(count * type_size);
  if (whole < from.size()) std::memcpy(to + whole, from.data() + whole, from.size() - whole);
}

void shuffle_bytes(Bytes from, std::byte* to, int64_t type_size) {
  const int64_t count = static_cast<int64_t>(from.size()) / type_size;
  for (int64_t b = 0; b < type_size; ++b)
    for (int64_t i = 0; i < count; ++i) to[b * count + i] = from[static_cast<size_t>(i * type_size + b)];
  const size_t whole = static_cast<size_t>(count * type_size);
  if (whole < from.size()) std::memcpy(to + whole, from.data() + whole, from.size() - whole);
}

}  // namespace vox
