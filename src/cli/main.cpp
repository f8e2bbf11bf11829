// Parses the command line, calls one function, and turns what is thrown into one sentence and an exit status.
#include <CLI/CLI.hpp>
#include <iostream>
#include <new>

#include "base/error.h"
#include "cli/command.h"

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

int run(int argc, char** argv) {
  CLI::App app("Voxloom trains, runs and measures 3D U-Nets on volumes.", "voxloom");
  app.set_version_flag("--version", VOX_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(40);
  for (const CommandEntry& command : all_commands()) command.define(*app.add_subcommand(command.name, command.help));
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
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
