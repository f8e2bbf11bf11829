// Libraries that a build may lack, and what then cannot be read.
#pragma once

#include <string>
#include <vector>

namespace vox {

struct BuildLibrary {
  std::string name;
  bool present = false;
  std::string without;  // what is missing or slower where it is absent
};
std::vector<BuildLibrary> build_libraries();

}  // namespace vox
