// Words for commands that users are shown.
#pragma once

#include <string>

namespace vox::cli {

// As a shell takes it: a word with anything special in it stands in single quotes.
std::string shell_word(const std::string& word);

}  // namespace vox::cli
