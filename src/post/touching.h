// The rule of steps that add to a piece: pieces are not glued together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/shape.h"

namespace vox {

// Whether one of the 26 neighbours of `at`, or `at` itself, belongs to a piece (numbered from 1) other than `piece`.
inline bool touches_another(const std::vector<uint32_t>& pieces, const Extent3& e, const Extent3& at, uint32_t piece) {
  for (int64_t z = std::max<int64_t>(at.z - 1, 0); z <= std::min(at.z + 1, e.z - 1); ++z)
    for (int64_t y = std::max<int64_t>(at.y - 1, 0); y <= std::min(at.y + 1, e.y - 1); ++y)
      for (int64_t x = std::max<int64_t>(at.x - 1, 0); x <= std::min(at.x + 1, e.x - 1); ++x)
        if (const uint32_t other = pieces[static_cast<size_t>((z * e.y + y) * e.x + x)]; other != 0 && other != piece)
          return true;
  return false;
}

}  // namespace vox
