// YAML text to a Tree. Repeated keys stay, in order: what they mean is the caller's business.
#pragma once

#include <string>

#include "config/tree.h"

namespace vox {

// `name` stands in messages and in Tree::where: "train.yaml:12". With `lines` off, where is just the name.
struct YamlSource {
  std::string name;
  bool lines = true;
};
Tree parse_yaml(const std::string& text, const YamlSource& source);

}  // namespace vox
