#include "config/expand.h"

#include <cstdlib>

#include "base/error.h"

namespace vox {

std::string expand_variables(const std::string& text, const std::string& key, const std::string& where) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 3, "$${") == 0) {
      out += "${";
      i += 2;
    } else if (text.compare(i, 2, "${") == 0) {
      const size_t end = text.find('}', i);
      VOX_CHECK(end != std::string::npos, key, " (", where, "): \"", text, "\" has ${ without }");
      const std::string name = text.substr(i + 2, end - i - 2);
      const char* value = std::getenv(name.c_str());
      VOX_CHECK(value, key, " (", where, "): the environment variable ", name, " is not set; set it, or give ", key,
                "=... on the command line");
      out += value;
      i = end;
    } else {
      out += text[i];
    }
  }
  return out;
}

Tree expand_variables(Tree tree, const std::string& key) {
  tree.scalar = expand_variables(tree.scalar, key, tree.where);
  for (Tree& item : tree.items) item = expand_variables(std::move(item), key);
  for (auto& [name, value] : tree.members) value = expand_variables(std::move(value), key);
  return tree;
}

}  // namespace vox
