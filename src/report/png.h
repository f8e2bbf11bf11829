// PNG of 8-bit images: gray, gray + alpha, RGB, RGBA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vox {

struct Image {
  int64_t width = 0, height = 0;
  int64_t channels = 1;         // 1 gray, 2 gray + alpha, 3 RGB, 4 RGBA
  std::vector<uint8_t> pixels;  // rows from the top, channels together
};

std::string encode_png(const Image& image);

}  // namespace vox
