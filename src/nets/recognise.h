// Which network a set of weights belongs to, and with which options, from names and shapes alone. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/options.h"

namespace vox {

using ShapeMap = std::map<std::string, std::vector<int64_t>>;

struct Recognised {
  std::string architecture;
  std::string prefix;                // what wrappers put before every name: "model.", "module.", "_orig_mod.", ...
  std::vector<std::string> options;  // key=value of the section model; what names and shapes do not tell is left out
};

// Nothing where no network's names are there. `architecture` narrows the search to one; "" is any.
std::optional<Recognised> recognise(const ShapeMap& shapes, const std::string& architecture = "");

// Names under which an original network stores a tensor a second time: one copy is enough to read.
bool is_second_copy(const std::string& name);
// The other way: every name under which the original expects the tensor `name`, besides `name` itself. `all` are the
// names of the network.
std::vector<std::string> second_copies(const ModelOptions& options, const std::string& name, const ShapeMap& all);

}  // namespace vox
