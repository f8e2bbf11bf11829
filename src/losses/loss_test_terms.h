// What tests of losses write as a recipe would.
#pragma once

#include <string>

#include "config/tree.h"

namespace vox {

inline Tree scalar(const std::string& value) {
  Tree tree;
  tree.kind = Tree::Kind::kScalar;
  tree.scalar = value;
  return tree;
}

}  // namespace vox
