// The two halves of `voxloom inspect`: a volume file and a recipe.
#pragma once

#include <string>
#include <vector>

namespace vox::cli {

struct InspectRequest {
  std::string name;
  std::vector<std::string> overrides;  // of a recipe
  bool as_json = false;
};

void inspect_config(const InspectRequest& request);

}  // namespace vox::cli
