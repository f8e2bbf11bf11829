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
};
const std::vector<NetworkEntry>& all_networks();

}  // namespace vox
