#include "nets/registry.h"

#include "base/error.h"
#include "base/text.h"

namespace vox {

namespace {

std::string names_of_those(bool NetworkEntry::*able) {
  std::vector<std::string> names;
  for (const NetworkEntry& entry : all_networks())
    if (entry.*able) names.push_back(entry.name);
  return join(names, ", ");
}

}  // namespace

std::vector<IgnoredOption> ignored_model_options(const ModelOptions& options) {
  std::vector<IgnoredOption> ignored;
  for (const NetworkEntry& entry : all_networks()) {
    if (entry.name != options.architecture) continue;
    if (options.deep_supervision && !entry.deep_supervision)
      ignored.push_back({"model.deep_supervision", concat("a ", entry.name, " has no coarser outputs to supervise; ",
                                                          names_of_those(&NetworkEntry::deep_supervision), " have")});
    if (options.dropout > 0 && !entry.dropout)
      ignored.push_back({"model.dropout", concat("a ", entry.name, " has no place for it; ",
                                                 names_of_those(&NetworkEntry::dropout), " have")});
  }
  return ignored;
}

}  // namespace vox
