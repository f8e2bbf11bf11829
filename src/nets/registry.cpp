#include "nets/registry.h"

#include "base/error.h"
#include "base/text.h"

namespace vox {

std::vector<std::string> ignored_model_options(const ModelOptions& options) {
  std::vector<std::string> ignored, able;
  bool unable = false;
  for (const NetworkEntry& entry : all_networks()) {
    if (entry.deep_supervision) able.push_back(entry.name);
    if (entry.name == options.architecture) unable = !entry.deep_supervision;
  }
  if (options.deep_supervision && unable)
    ignored.push_back(
        concat("a ", options.architecture, " has no coarser outputs to supervise; ", join(able, ", "), " have"));
  return ignored;
}

}  // namespace vox
