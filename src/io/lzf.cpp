#include "io/lzf.h"

#include <cstring>

#include "base/error.h"

namespace vox {

// A control byte below 32 is followed by that many and one more plain bytes. Above, its high three bits are a length
// less 2 (7: a byte with more follows), and its low five bits with the next byte a distance less 1.
void lzf_decode(std::span<const std::byte> packed, std::span<std::byte> out) {
  size_t at = 0, made = 0;
  const auto next = [&]() -> size_t {
    VOX_CHECK(at < packed.size(), "the LZF data ends after ", made, " of ", out.size(), " bytes");
    return static_cast<size_t>(packed[at++]);
  };
  while (made < out.size()) {
    const size_t control = next();
    if (control < 32) {
      const size_t count = control + 1;
      VOX_CHECK(count <= packed.size() - at, "the LZF data ends after ", made, " of ", out.size(), " bytes");
      VOX_CHECK(count <= out.size() - made, "the LZF data holds more than ", out.size(), " bytes");
      std::memcpy(out.data() + made, packed.data() + at, count);
      at += count;
      made += count;
      continue;
    }
    size_t count = control >> 5;
    if (count == 7) count += next();
    count += 2;
    const size_t distance = ((control & 31) << 8) + next() + 1;
    VOX_CHECK(distance <= made, "the LZF data is damaged: it refers to bytes before its begin");
    VOX_CHECK(count <= out.size() - made, "the LZF data holds more than ", out.size(), " bytes");
    const std::byte* from = out.data() + made - distance;
    std::byte* to = out.data() + made;
    if (distance >= count) {
      std::memcpy(to, from, count);
    } else {
      for (size_t i = 0; i < count; ++i) to[i] = from[i];  // what is copied is still being made
    }
    made += count;
  }
  VOX_CHECK(at == packed.size(), "the LZF data holds more than ", out.size(), " bytes");
}

}  // namespace vox
