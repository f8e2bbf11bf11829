// voxloom stop: asks the process that writes a run to end it cleanly.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/shell_word.h"
#include "report/run_folder.h"

namespace vox::cli {
namespace {

struct StopOptions {
  std::string run, at = "step";
};

void run_stop(const StopOptions& options) {
  const RunFolder run = RunFolder::open(options.run);
  const RunRecord record = read_record(run);
  VOX_CHECK(is_alive(record, read_status(run)), options.run, ": no process is writing this run (it is ",
            record.state == RunState::kRunning ? "dead: its process was killed" : name_of(record.state),
            "); there is nothing to stop.");
  const bool epoch = options.at == "epoch";
  request_stop(run, epoch ? StopRequest::kAtEpoch : StopRequest::kAtStep);
  std::cout << options.run << " will save and end after the " << (epoch ? "epoch" : "step")
            << " under way; `voxloom status " << shell_word(options.run) << "` shows when it has.\n";
}

void define(CLI::App& command) {
  auto options = std::make_shared<StopOptions>();
  command.add_option("run", options->run, "The run folder")->required();
  command.add_option("--at", options->at, "Where it ends")
      ->check(CLI::IsMember({"step", "epoch"}))
      ->capture_default_str();
  command.callback([options] { run_stop(*options); });
}

}  // namespace

CommandEntry stop_command() {
  return {"stop", "End a run cleanly: it saves a checkpoint and leaves.", define};
}

}  // namespace vox::cli
