#include "io/lz4_block.h"

#include "base/error.h"
#ifdef VOX_HAVE_LZ4
#include <lz4.h>
#endif

namespace vox {

#ifdef VOX_HAVE_LZ4
bool have_lz4() {
  return true;
}

void lz4_decode(std::span<const std::byte> packed, std::span<std::byte> out) {
  VOX_CHECK(packed.size() <= LZ4_MAX_INPUT_SIZE && out.size() <= LZ4_MAX_INPUT_SIZE,
            "an lz4 block of 2 GiB is too large");
  const int got = LZ4_decompress_safe(reinterpret_cast<const char*>(packed.data()), reinterpret_cast<char*>(out.data()),
                                      static_cast<int>(packed.size()), static_cast<int>(out.size()));
  VOX_CHECK(got >= 0, "the lz4 data is damaged");
  VOX_CHECK(got == static_cast<int>(out.size()), "the lz4 data ends after ", got, " of ", out.size(), " bytes");
}

std::vector<std::byte> lz4_encode(std::span<const std::byte> bytes) {
  VOX_CHECK(bytes.size() <= LZ4_MAX_INPUT_SIZE, "an lz4 block of 2 GiB is too large; use smaller chunks");
  const int room = LZ4_compressBound(static_cast<int>(bytes.size()));
  std::vector<std::byte> packed(static_cast<size_t>(room));
  const int size = LZ4_compress_default(reinterpret_cast<const char*>(bytes.data()),
                                        reinterpret_cast<char*>(packed.data()), static_cast<int>(bytes.size()), room);
  VOX_ASSERT(size > 0);
  packed.resize(static_cast<size_t>(size));
  return packed;
}
#else
bool have_lz4() {
  return false;
}
void lz4_decode(std::span<const std::byte>, std::span<std::byte>) {
  throw Error("lz4 data cannot be read: this build has no lz4; install liblz4-dev and build again");
}
std::vector<std::byte> lz4_encode(std::span<const std::byte>) {
  throw Error("lz4 data cannot be written: this build has no lz4; install liblz4-dev and build again");
}
#endif

}  // namespace vox
