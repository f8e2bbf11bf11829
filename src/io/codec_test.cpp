#include "io/codec.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"

namespace vox {
namespace {

using ByteVector = std::vector<std::byte>;

ByteVector bytes_of(const std::vector<int>& values) {
  ByteVector bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// Runs, noise of few or many values, and repeats of what was there before, in random order.
ByteVector mixed_bytes(int64_t count, uint64_t seed) {
  Random random(seed, 0, 0);
  ByteVector bytes;
  while (static_cast<int64_t>(bytes.size()) < count) {
    const int64_t kind = random.below(4), length = 1 + random.below(kind == 0 ? 9000 : 300);
    const int64_t values = kind == 1 ? 256 : 3;
    const std::byte run = static_cast<std::byte>(random.below(256));
    const size_t from = bytes.empty() ? 0 : static_cast<size_t>(random.below(static_cast<int64_t>(bytes.size())));
    const bool repeat = kind == 3 && !bytes.empty();
    for (int64_t i = 0; i < length; ++i) {
      const std::byte drawn = kind == 0 ? run : static_cast<std::byte>(random.below(values));
      bytes.push_back(repeat ? bytes[from + static_cast<size_t>(i)] : drawn);
    }
  }
  bytes.resize(static_cast<size_t>(count));
  return bytes;
}

TEST(Codec, LzwDecodesTheExampleOfTheTiffSpecification) {
  // TIFF 6.0, section 13: 7 7 7 8 8 7 7 6 6 is Clear 7 258 8 8 258 6 6 End, nine bits each.
  const std::vector<uint32_t> codes{256, 7, 258, 8, 8, 258, 6, 6, 257};
  ByteVector packed;
  uint64_t pending = 0;
  int held = 0;
  for (const uint32_t code : codes) {
    pending = (pending << 9) | code;
    for (held += 9; held >= 8; held -= 8) packed.push_back(static_cast<std::byte>(pending >> (held - 8)));
  }
  packed.push_back(static_cast<std::byte>(pending << (8 - held)));
  const ByteVector expected = bytes_of({7, 7, 7, 8, 8, 7, 7, 6, 6});
  ByteVector out(expected.size());
  lzw_decode(packed, out);
  EXPECT_EQ(out, expected);
  EXPECT_EQ(lzw_encode(expected), packed);
}

TEST(Codec, PackBitsDecodesApplesExample) {  // Apple technical note TN1023
  const ByteVector packed =
      bytes_of({0xFE, 0xAA, 0x02, 0x80, 0x00, 0x2A, 0xFD, 0xAA, 0x03, 0x80, 0x00, 0x2A, 0x22, 0xF7, 0xAA});
  const ByteVector expected = bytes_of({0xAA, 0xAA, 0xAA, 0x80, 0x00, 0x2A, 0xAA, 0xAA, 0xAA, 0xAA, 0x80, 0x00,
                                        0x2A, 0x22, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA});
  ByteVector out(expected.size());
  decode_bytes(Codec::kPackBits, packed, out);
  EXPECT_EQ(out, expected);
}

TEST(Codec, EveryCodecReturnsWhatItPackedAndAnyLeadingPart) {
  for (const Codec codec : {Codec::kNone, Codec::kLzw, Codec::kDeflate, Codec::kZstd, Codec::kPackBits}) {
    Random random(3, static_cast<uint64_t>(codec), 0);
    for (uint64_t trial = 0; trial < 25; ++trial) {
      const ByteVector bytes = mixed_bytes(trial < 5 ? static_cast<int64_t>(trial) : random.below(120000), trial);
      const ByteVector packed = encode_bytes(codec, bytes);
      ByteVector out(bytes.size());
      decode_bytes(codec, packed, out);
      ASSERT_EQ(out, bytes) << name_of(codec) << " trial " << trial;
      ByteVector part(static_cast<size_t>(random.below(static_cast<int64_t>(bytes.size()) + 1)));
      decode_bytes(codec, packed, part);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), bytes.begin())) << name_of(codec) << " trial " << trial;
    }
  }
}

TEST(Codec, NoPackedBytesHoldMoreThanTheExpansionSays) {
  const ByteVector zeros(8 << 20);
  for (const Codec codec : {Codec::kLzw, Codec::kDeflate, Codec::kZstd, Codec::kPackBits}) {
    const int64_t packed = static_cast<int64_t>(encode_bytes(codec, zeros).size());
    EXPECT_GE(packed * max_expansion(codec), static_cast<int64_t>(zeros.size())) << name_of(codec);
  }
}

TEST(Codec, TruncatedAndDamagedBytesAreErrorsOrOtherBytesButNeverMore) {
  for (const Codec codec : {Codec::kLzw, Codec::kDeflate, Codec::kZstd, Codec::kPackBits}) {
    Random random(5, static_cast<uint64_t>(codec), 0);
    const ByteVector bytes = mixed_bytes(20000, 7), packed = encode_bytes(codec, bytes);
    ByteVector out(bytes.size());
    EXPECT_THROW(decode_bytes(codec, std::span(packed).first(packed.size() / 2), out), Error) << name_of(codec);
    EXPECT_THROW(decode_bytes(codec, {}, out), Error) << name_of(codec);
    for (int trial = 0; trial < 500; ++trial) {
      ByteVector damaged = packed;
      for (int64_t flips = 1 + random.below(8); flips > 0; --flips)
        damaged[static_cast<size_t>(random.below(static_cast<int64_t>(damaged.size())))] ^=
            static_cast<std::byte>(1 + random.below(255));
      try {
        decode_bytes(codec, damaged, out);
      } catch (const Error& error) {
        EXPECT_EQ(error.fault(), Fault::kInput) << error.what();
      }
    }
  }
}

TEST(Codec, OldStyleLzwIsRefusedByName) {
  ByteVector out(10);
  try {
    lzw_decode(bytes_of({0x00, 0x01, 0x02, 0x03}), out);
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("old-style LZW"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace vox
