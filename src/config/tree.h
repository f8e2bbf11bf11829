// A parsed configuration before it has types: scalars, lists and maps in the order of the file, each with the place it
// came from, for messages. Parts of a recipe whose options belong to a registry entry (a loss, a network, a
// preprocessing step) are handed on in this form and read by the entry itself.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace vox {

struct Tree {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string scalar;
  std::vector<Tree> items;                            // of a list
  std::vector<std::pair<std::string, Tree>> members;  // of a map, in file order
  std::string where;                                  // "train.yaml:12" or "command line"

  const Tree* find(const std::string& key) const;  // null where absent or no map
  bool operator==(const Tree& other) const;        // wherever the two came from
};

Tree scalar_tree(std::string text, std::string where = {});
Tree list_tree(std::vector<Tree> items, std::string where = {});

}  // namespace vox
