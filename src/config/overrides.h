// `key=value` of the command line.
#pragma once

#include <string>
#include <utility>

#include "config/tree.h"

namespace vox {

// Lists are 32,64,128 or [32, 64, 128], nested ones [[1,2,2],[2,2,2]]; lists of structs are YAML in flow style.
std::pair<std::string, Tree> parse_override(const std::string& text);

}  // namespace vox
