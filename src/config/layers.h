// A recipe as a sequence of assignments, lowest first: what it extends, the file itself, the command line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/tree.h"

namespace vox {

struct Assignment {
  std::string key;  // as written, dotted
  Tree value;
  std::filesystem::path folder;  // relative paths start here
};

struct Layer {
  std::string name;  // file, or "command line"
  std::vector<Assignment> assignments;
};

struct Layers {
  std::vector<Layer> layers;          // lowest first
  std::vector<std::string> warnings;  // repeated keys
  bool extends = false;               // somewhere another recipe was named
};

void add_file(Layers& layers, const std::filesystem::path& file);
void add_text(Layers& layers, const std::string& yaml, const std::filesystem::path& folder);
// `extends=FILE` among them goes below everything that is there.
void add_overrides(Layers& layers, const std::vector<std::string>& overrides, const std::filesystem::path& folder);

}  // namespace vox
