// The parts of `voxloom inspect`: a volume file, a recipe, and one augmented sample of a recipe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vox::cli {

struct InspectRequest {
  std::string name;
  std::vector<std::string> overrides;  // of a recipe
  bool as_json = false;
  int64_t sample = -1;  // of the training set of a recipe: shows what is drawn for it; -1: none
  std::string picture;  // PNG to write of that sample
};

void inspect_config(const InspectRequest& request);
void inspect_sample(const InspectRequest& request);

}  // namespace vox::cli
