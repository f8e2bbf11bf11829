// Both ways to inflate must agree: builds without libdeflate have zlib alone.
#include "io/inflate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"

namespace vox {
namespace {

using ByteVector = std::vector<std::byte>;
using Inflate = void (*)(std::span<const std::byte>, std::span<std::byte>);
constexpr Inflate kWays[] = {inflate_all, inflate_all_by_zlib};

ByteVector some_bytes(int64_t count, uint64_t seed) {  // few values, so that they pack
  Random random(seed, 0, 0);
  ByteVector bytes;
  for (int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(random.below(1 + i % 7)));
  return bytes;
}

TEST(Inflate, BothWaysReturnWhatWasPacked) {
  for (const DeflateKind kind : {DeflateKind::kZlib, DeflateKind::kGzip}) {
    for (const int level : {0, 1, 6, 9}) {
      for (const int64_t count : {1, 100, 70000}) {
        const ByteVector bytes = some_bytes(count, static_cast<uint64_t>(level)),
                         packed = deflate_all(bytes, kind, level);
        for (const Inflate inflate : kWays) {
          ByteVector out(bytes.size());
          inflate(packed, out);
          EXPECT_EQ(out, bytes) << "level " << level << ", " << count << " bytes";
        }
      }
    }
  }
}

TEST(Inflate, BothWaysReadSeveralGzipMembers) {
  const ByteVector bytes = some_bytes(5000, 1);
  ByteVector packed = deflate_all(std::span(bytes).first(2000), DeflateKind::kGzip, 6);
  const ByteVector rest = deflate_all(std::span(bytes).subspan(2000), DeflateKind::kGzip, 6);
  packed.insert(packed.end(), rest.begin(), rest.end());
  for (const Inflate inflate : kWays) {
    ByteVector out(bytes.size());
    inflate(packed, out);
    EXPECT_EQ(out, bytes);
  }
}

std::string refusal_of(Inflate inflate, std::span<const std::byte> packed, size_t size) {
  ByteVector out(size);
  try {
    inflate(packed, out);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Inflate, BothWaysSayWhatIsWrong) {
  for (const DeflateKind kind : {DeflateKind::kZlib, DeflateKind::kGzip}) {
    const ByteVector bytes = some_bytes(20000, 2), packed = deflate_all(bytes, kind, 6);
    ByteVector wrong_sum = packed, damaged = packed;
    wrong_sum[packed.size() - (kind == DeflateKind::kGzip ? 5 : 1)] ^= std::byte{1};
    for (size_t i = 100; i < 140; ++i) damaged[i] ^= std::byte{0xa5};
    for (const Inflate inflate : kWays) {
      EXPECT_NE(refusal_of(inflate, std::span(packed).first(packed.size() / 2), bytes.size()).find("ends after"),
                std::string::npos);
      EXPECT_NE(refusal_of(inflate, packed, bytes.size() + 1).find("ends after"), std::string::npos);
      EXPECT_NE(refusal_of(inflate, packed, bytes.size() - 1).find("holds more"), std::string::npos);
      EXPECT_NE(refusal_of(inflate, wrong_sum, bytes.size()).find("damaged"), std::string::npos);
      EXPECT_NE(refusal_of(inflate, damaged, bytes.size()), "");
      EXPECT_NE(refusal_of(inflate, {}, bytes.size()), "");
    }
  }
}

}  // namespace
}  // namespace vox
