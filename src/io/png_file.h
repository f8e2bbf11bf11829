// One grey PNG image.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace vox::png {

struct Shape {
  int64_t height = 0, width = 0;
  int bits = 8;  // 1, 2, 4, 8 or 16
};
Shape read_shape(const std::string& path);

// Rows from top to bottom in `dtype`, uint8 or uint16. Fewer than eight bits keep their values: 0 and 1 of a mask.
void read_image(const std::string& path, const Shape& expected, DType dtype, std::byte* out);
std::vector<std::byte> encode_image(const std::byte* rows, const Shape& shape, int level);

}  // namespace vox::png
