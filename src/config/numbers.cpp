#include "config/numbers.h"

#include <charconv>
#include <cmath>

#include "base/text.h"

namespace vox {
namespace {

template <class T>
std::optional<T> read_whole(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<bool> read_bool(const std::string& text) {
  const std::string word = lower(text);
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return std::nullopt;
}

std::optional<int64_t> read_integer(const std::string& text) {
  return read_whole<int64_t>(text);
}

std::optional<double> read_number(const std::string& text) {
  const auto value = read_whole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

}  // namespace vox
