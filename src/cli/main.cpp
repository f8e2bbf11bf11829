// Parses the command line, calls one function, and turns what is thrown into one sentence and an exit status.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <new>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/torch_version.h"

namespace vox::cli {

#define VOX_COMMAND(name) CommandEntry name##_command();
#include "cli/commands.list"
#undef VOX_COMMAND

const std::vector<CommandEntry>& all_commands() {
#define VOX_COMMAND(name) name##_command(),
  static const std::vector<CommandEntry> entries{
#include "cli/commands.list"
  };
#undef VOX_COMMAND
  return entries;
}

namespace {

constexpr int kWrongInput = 1, kWrongCommandLine = 2, kMachineFailed = 3;

int report(const Error& error) {
  std::cerr << "voxloom: " << error.what() << '\n';
  if (error.fault() == Fault::kBug) std::cerr << "voxloom: this is a mistake in Voxloom itself; please report it.\n";
  return error.fault() == Fault::kInput ? kWrongInput : kMachineFailed;
}

// CLI11 would say only that a command is required.
bool knows_command(const std::string& word) {
  std::vector<std::string> known;
  for (const CommandEntry& command : all_commands()) known.push_back(command.name);
  if (word.empty() || word.front() == '-' || std::find(known.begin(), known.end(), word) != known.end()) return true;
  const std::string guess = nearest(word, known);
  std::cerr << "voxloom: there is no command \"" << word << "\""
            << (guess.empty() ? "; known: " + join(known, ", ") : "; did you mean \"" + guess + "\"?") << '\n';
  return false;
}

// A command that has commands of its own, without one of them: CLI11 would say only that one is required.
bool says_which(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    const auto parts = command->get_subcommands([](const CLI::App*) { return true; });
    if (parts.empty() || !command->get_subcommands().empty()) continue;
    const std::vector<std::string> words = command->remaining();
    std::cerr << "voxloom " << command->get_name() << ": "
              << (words.empty() ? "say which:" : "there is no \"" + words.front() + "\"; there is:") << '\n';
    for (const CLI::App* part : parts)
      std::cerr << "  " << std::left << std::setw(10) << part->get_name() << part->get_description() << '\n';
    return true;
  }
  return false;
}

int run(int argc, char** argv) {
  if (argc > 1 && !knows_command(argv[1])) return kWrongCommandLine;
  CLI::App app("Voxloom trains, runs and measures 3D U-Nets on volumes.", "voxloom");
  app.set_version_flag("--version", VOX_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(40);
  for (const CommandEntry& command : all_commands()) command.define(*app.add_subcommand(command.name, command.help));
  try {
    require_built_torch();
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::RuntimeError& ended) {  // a run that a signal ended, its state saved
    return ended.get_exit_code();
  } catch (const CLI::ParseError& error) {
    if (!says_which(app)) app.exit(error);
    return kWrongCommandLine;
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(Error("out of memory", Fault::kMachine));
  } catch (const std::exception& error) {
    return report(Error(error.what(), Fault::kBug));
  }
}

}  // namespace
}  // namespace vox::cli

int main(int argc, char** argv) {
  return vox::cli::run(argc, argv);
}
