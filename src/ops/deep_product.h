// Which layers are computed as matrix products because cuDNN's thread blocks, one for a tile of the result, would be
// few and have much to sum. The estimate of memory asks too: such products write gradients of weights in float32.
#pragma once

#include <cstdint>

namespace vox::ops {

inline int64_t result_tiles(int64_t rows, int64_t columns) {
  constexpr int64_t kTile = 128;
  return (rows + kTile - 1) / kTile * ((columns + kTile - 1) / kTile);
}
inline constexpr int64_t kFewTiles = 64;  // that leave half of a large GPU idle

// A matrix [rows, width] by one [width, channels].
inline bool is_deep_product(int64_t rows, int64_t width, int64_t channels) {
  constexpr int64_t kWidth = 2048;
  return width >= kWidth && result_tiles(rows, channels) <= kFewTiles;
}

}  // namespace vox::ops
