#include "base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

namespace vox {
namespace {
char lower_char(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != separator) continue;
    parts.emplace_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts, const std::string& separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) text += (i ? separator : "") + parts[i];
  return text;
}

std::string trim(std::string_view text) {
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower_char);
  return out;
}

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && lower(text.substr(text.size() - suffix.size())) == lower(suffix);
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  std::iota(d[0].begin(), d[0].end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = static_cast<int>(word.size()) / 3 + 2;  // farther than this is another word
  for (const std::string& candidate : known) {
    const int distance = edit_distance(lower(word), lower(candidate));
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

bool natural_less(std::string_view a, std::string_view b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    size_t i_end = i, j_end = j;
    while (i_end < a.size() && is_digit(a[i_end])) ++i_end;
    while (j_end < b.size() && is_digit(b[j_end])) ++j_end;
    std::string_view number_a = a.substr(i, i_end - i), number_b = b.substr(j, j_end - j);
    while (number_a.size() > 1 && number_a.front() == '0') number_a.remove_prefix(1);
    while (number_b.size() > 1 && number_b.front() == '0') number_b.remove_prefix(1);
    if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
    if (number_a != number_b) return number_a < number_b;
    i = i_end, j = j_end;
  }
  if (i < a.size() || j < b.size()) return j < b.size();
  return a < b;  // equal but for leading zeros: still one order
}

std::string format_number(double value, int digits) {
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr;
  return {text.data(), end};
}

std::string shortest(double value) {
  std::array<char, 64> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string human_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  return format_number(value, unit == 0 || value >= 100 ? 0 : 1) + " " + kUnits[unit];
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds < 10) return format_number(seconds, seconds < 1 ? 2 : 1) + " s";
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

namespace {

// Bytes of the character that `text` begins with; 0: it begins with none (RFC 3629).
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0), second = byte(1);
  if (lead < 0x80) return 1;
  const size_t bytes = lead >= 0xc2 && lead < 0xe0   ? 2
                       : lead >= 0xe0 && lead < 0xf0 ? 3
                       : lead >= 0xf0 && lead < 0xf5 ? 4
                                                     : 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool beyond = (lead == 0xed && second >= 0xa0) || (lead == 0xf4 && second >= 0x90);
  return overlong || beyond ? 0 : bytes;
}

}  // namespace

std::string utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    result += bytes == 0 ? "?" : text.substr(0, bytes);
    text.remove_prefix(std::max<size_t>(1, bytes));
  }
  return result;
}

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 200;
  std::string result(text.substr(0, kLongest));
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > kLongest ? result + "..." : result;
}

}  // namespace vox
