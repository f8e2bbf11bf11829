#include "config/tree.h"

namespace vox {

const Tree* Tree::find(const std::string& key) const {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

bool Tree::operator==(const Tree& other) const {
  return kind == other.kind && scalar == other.scalar && items == other.items && members == other.members;
}

Tree scalar_tree(std::string text, std::string where) {
  Tree tree;
  tree.kind = Tree::Kind::kScalar;
  tree.scalar = std::move(text);
  tree.where = std::move(where);
  return tree;
}

Tree list_tree(std::vector<Tree> items, std::string where) {
  Tree tree;
  tree.kind = Tree::Kind::kList;
  tree.items = std::move(items);
  tree.where = std::move(where);
  return tree;
}

}  // namespace vox
