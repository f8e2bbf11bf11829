// ${VAR} in values. $${ stands for a literal ${.
#pragma once

#include <string>

#include "config/tree.h"

namespace vox {

// Error names the variable that is not set, and `key`.
std::string expand_variables(const std::string& text, const std::string& key, const std::string& where);
Tree expand_variables(Tree tree, const std::string& key);

}  // namespace vox
