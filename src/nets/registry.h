// The list of networks. A new one is a file nets/<name>.cpp that defines <name>_entry(), and a line in networks.list.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/options.h"

namespace vox {

class Network;

struct NetworkEntry {
  std::string name, help;
  std::function<std::unique_ptr<Network>(const ModelOptions&, uint64_t seed)> make;
  bool deep_supervision = false;  // has coarser outputs where model.deep_supervision asks for them
  bool dropout = true;            // drops where model.dropout asks for it
};
const std::vector<NetworkEntry>& all_networks();

// Options that are set though the architecture cannot follow them: a run goes on without them.
struct IgnoredOption {
  std::string key, reason;
};
std::vector<IgnoredOption> ignored_model_options(const ModelOptions& options);

}  // namespace vox
