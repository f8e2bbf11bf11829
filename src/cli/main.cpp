// Parses the command line, calls one function, and turns what is thrown into one sentence and an exit status.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <new>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/torch_version.h"
#include "config/device_name.h"
#include "report/foreign_error.h"
#include "train/signals.h"

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

int report_foreign(const std::exception& thrown) {
  const ForeignError error = foreign_error(thrown.what());
  if (!error.out_of_memory) return report(Error(error.sentence, Fault::kBug));
  return report(Error(
      error.sentence + "; `voxloom train RECIPE --dry-run` adds up what a step needs, and a smaller data.batch_size, "
                       "data.patch_size or data.cache_gb needs less",
      Fault::kMachine));
}

// Every command takes --device and --version, also where nothing depends on the device: scripts need not know which.
void complete(CLI::App& command) {
  command.set_version_flag("--version", VOX_VERSION);
  const auto parts = command.get_subcommands([](const CLI::App*) { return true; });
  for (CLI::App* part : parts) complete(*part);
  CLI::Option* const device = command.get_option_no_throw("--device");
  if (device) device->each(see_only);
  if (!parts.empty() || device) return;
  const auto refusal = [](const std::string& name) { return is_device_name(name) ? "" : "it is cpu, cuda or cuda:N"; };
  command.add_option("--device", "cpu, cuda or cuda:N; nothing here depends on it")
      ->check(CLI::Validator(refusal, "cpu|cuda[:N]"));
}

// A limit on the size of files and a reader that ended are errors to be told or ignored, not to die of: a run would go
// without saving.
void keep_from_deadly_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

// Where standard input, output or error is closed (`>&-`) the next file to be opened would get its number, and what is
// told would stand among a run's curves.
void keep_standard_descriptors() {
  int descriptor = open("/dev/null", O_RDWR);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = dup(descriptor);
  if (descriptor > STDERR_FILENO) close(descriptor);
}

bool reader_is_gone() {
  pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

int status_of_output() {
  std::cout.flush();
  if (std::cout || reader_is_gone()) return 0;
  return report(Error("cannot write to standard output; is the disk full that it goes to?", Fault::kMachine));
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

void print_parts(const std::string& name, const std::string& question, const std::vector<CLI::App*>& parts) {
  std::cerr << name << ": " << question << '\n';
  for (const CLI::App* part : parts)
    std::cerr << "  " << std::left << std::setw(10) << part->get_name() << part->get_description() << '\n';
}

// CLI11 writes an open end of a range as a number of 300 digits.
std::string readable(const std::string& text) {
  const size_t range = text.find(" not in range "), end = text.find("17976931348623157");
  return range == std::string::npos || end == std::string::npos ? text : text.substr(0, range) + " is too small";
}

std::string meant_option(CLI::App& command) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const std::string& word : command.remaining()) {
    const std::string guess = word.starts_with("--") ? nearest(word.substr(0, word.find('=')), known) : "";
    if (!guess.empty()) return "; did you mean " + guess + "?";
  }
  return "";
}

int report_command_line(CLI::App& app, const CLI::ParseError& error) {
  CLI::App* command = &app;
  std::string name = "voxloom";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  const std::vector<CLI::App*> parts = command->get_subcommands([](const CLI::App*) { return true; });
  const std::vector<std::string> words = command->remaining();
  if (!parts.empty() && (words.empty() || !words.front().starts_with("-")))
    print_parts(name, words.empty() ? "say which:" : "there is no \"" + words.front() + "\"; there is:", parts);
  else
    std::cerr << name << ": " << readable(error.what()) << meant_option(*command) << " (`" << name
              << " --help` says what it takes)\n";
  return kWrongCommandLine;
}

int run(int argc, char** argv) {
  if (argc > 1 && !knows_command(argv[1])) return kWrongCommandLine;
  CLI::App app("Voxloom trains, runs and measures 3D U-Nets on volumes.", "voxloom");
  app.require_subcommand(1);
  app.get_formatter()->column_width(40);
  for (const CommandEntry& command : all_commands()) command.define(*app.add_subcommand(command.name, command.help));
  complete(app);
  try {
    require_built_torch();
    app.parse(argc, argv);
    return status_of_output();
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::RuntimeError& ended) {  // a run that a signal ended, its state saved
    return ended.get_exit_code();
  } catch (const Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (const CLI::ParseError& error) {
    return report_command_line(app, error);
  } catch (const Error& error) {
    return report(error);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(system_error("use", error.path1().string(), error.code().value()));
  } catch (const std::bad_alloc&) {
    return report(Error("out of memory", Fault::kMachine));
  } catch (const std::exception& error) {
    return report_foreign(error);
  }
}

}  // namespace
}  // namespace vox::cli

int main(int argc, char** argv) {
  vox::cli::keep_standard_descriptors();
  vox::cli::keep_from_deadly_signals();
  return vox::cli::run(argc, argv);
}
