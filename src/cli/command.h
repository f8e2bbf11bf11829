// A command is one file: it declares its options on a CLI11 subcommand and sets the callback that runs it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace vox::cli {

struct CommandEntry {
  std::string name, help;
  void (*define)(CLI::App& command);
};
const std::vector<CommandEntry>& all_commands();

}  // namespace vox::cli
