// A recipe as it was resolved: file, `extends`, aliases of the field and overrides of the command line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/options.h"

namespace vox {

enum class KeyUse { kUsed, kMapped, kNoEffect };
struct KeyReport {  // one per key the user wrote
  std::string key;  // as written: "training.workers"
  KeyUse use;
  std::string note;        // "is data.num_workers here", "Voxloom has no worker processes"
  bool inherited = false;  // neither the recipe itself nor the command line has it, only what the recipe extends
};

struct Config {
  Options options;
  std::filesystem::path file;  // empty: made from overrides alone
  std::vector<KeyReport> keys;
  std::vector<std::string> warnings;  // a repeated key, an alias, an option without effect: each once
};

// Reads `file` with what it extends, then applies `overrides` ("data.root=/d", "model.filters=32,64").
// Relative paths in the result are absolute, ${VAR} is expanded.
Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});
Config parse_config(const std::string& yaml, const std::filesystem::path& folder,
                    const std::vector<std::string>& overrides = {});

// The resolved options as YAML that load_config reads back to the same options.
std::string to_yaml(const Options& options);

struct OptionDifference {
  std::string key, before, after;
};
std::vector<OptionDifference> differences(const Options& before, const Options& after);

// What `list options` and the reference page show.
struct OptionRow {
  std::string key, type, default_value, range, unit, meaning;
};
std::vector<OptionRow> option_rows();
struct AliasRow {
  // canonical is empty for a name that is accepted and does nothing, in system, model, data, training or outside
  std::string alias, canonical, note;
};
std::vector<AliasRow> alias_rows();

}  // namespace vox
