#include "cli/shell_word.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace vox::cli {

std::string shell_word(const std::string& word) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_-./=,:+@%", c);
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace vox::cli
