#include "report/html_text.h"

#include <cmath>
#include <cstdint>
#include <cstdio>

#include "base/file.h"
#include "base/text.h"

namespace vox {

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string base64(const std::string& bytes) {
  constexpr const char* kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve(bytes.size() * 4 / 3 + 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? kAlphabet[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string embedded_png(const std::filesystem::path& file) {
  return "data:image/png;base64," + base64(read_file(file));
}

std::string short_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size >= 1e6 || size < 1e-3) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.3g", value);
    return text;
  }
  if (value == std::round(value)) return format_number(value, 0);
  return format_number(value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4);
}

std::string short_number(const std::optional<double>& value) {
  return value ? short_number(*value) : "-";
}

}  // namespace vox
