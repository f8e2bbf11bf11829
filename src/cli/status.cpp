// voxloom status: how runs are doing, seen from another terminal.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/json_text.h"
#include "report/machine.h"
#include "report/progress.h"
#include "report/run_folder.h"

namespace vox::cli {
namespace {

struct StatusOptions {
  std::vector<std::string> runs;
  bool watch = false, json = false;
};

struct RunView {
  RunFolder folder;
  RunRecord record;
  RunStatus status;
  bool alive = false;
};

std::vector<fs::path> runs_here() {
  std::vector<fs::path> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator("runs", none))
    if (RunFolder::is_run(entry.path())) found.push_back(entry.path());
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return natural_less(a.string(), b.string()); });
  return found;
}

RunView view_of(const fs::path& path) {
  const RunFolder folder = RunFolder::open(path);
  const RunRecord record = read_record(folder);
  const std::optional<RunStatus> status = read_status(folder);
  return {folder, record, status.value_or(RunStatus{}), is_alive(record, status)};
}

std::vector<RunView> look(const StatusOptions& options) {
  const std::vector<fs::path> paths =
      options.runs.empty() ? runs_here() : std::vector<fs::path>(options.runs.begin(), options.runs.end());
  std::vector<RunView> views;
  for (const fs::path& path : paths) {
    try {
      views.push_back(view_of(path));
    } catch (const Error& error) {  // asked for by name it must be one; among all it hides no other
      if (!options.runs.empty()) throw;
      std::cerr << "voxloom: " << error.what() << '\n';
    }
  }
  return views;
}

// A run that says "running" without a living process was killed.
std::string ended(const RunView& view) {
  if (view.alive) return "";
  if (view.record.state == RunState::kRunning) return "killed";
  return view.record.reason.empty() ? name_of(view.record.state)
                                    : concat(name_of(view.record.state), ": ", view.record.reason);
}

int64_t last_step(const RunView& view) {
  const int64_t recorded = view.record.processes.empty() ? 0 : view.record.processes.back().last_step;
  return std::max(view.status.step, recorded);
}

nlohmann::ordered_json to_json(const RunView& view) {
  using Json = nlohmann::ordered_json;
  const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  const RunStatus& status = view.status;
  Json json{{"run", view.folder.path().string()},
            {"alive", view.alive},
            {"state", view.alive ? "running" : split(ended(view), ':')[0]}};
  json["ended"] = text(ended(view));
  json["phase"] = view.alive ? text(status.phase) : Json();
  json["step"] = last_step(view);
  json["total_steps"] = status.total_steps;
  json["epoch"] = status.epoch;
  json["total_epochs"] = status.total_epochs;
  json["loss"] = number(status.loss);
  json["step_ms"] = number(status.step_ms);
  json["samples_per_s"] = number(status.samples_per_s);
  json["data_wait"] = number(status.data_wait);
  json["host_rss_gb"] = number(status.host_rss_gb);
  json["gpu_mem_gb"] = number(status.gpu_mem_gb);
  json["gpu_util"] = number(status.gpu_util);
  json["eta_s"] = view.alive ? number(status.eta_s) : Json();
  json["heartbeat"] = text(status.heartbeat);
  json["last_checkpoint"] = text(view.record.last_checkpoint);
  json["last_warning"] = text(status.last_warning.empty() ? view.record.last_warning : status.last_warning);
  return json;
}

std::string progress_text(const RunView& view) {
  const RunStatus& status = view.status;
  std::string text = concat("step ", last_step(view));
  if (status.total_steps > 0) {
    const double fraction = static_cast<double>(last_step(view)) / static_cast<double>(status.total_steps);
    text += concat("/", status.total_steps, " (", format_number(100 * fraction, 0), " %)");
  }
  if (status.total_epochs > 0) text += concat(", epoch ", status.epoch, "/", status.total_epochs);
  if (status.loss) text += ", loss " + format_number(*status.loss, 4);
  return text;
}

std::string speed_text(const RunStatus& status) {
  std::vector<std::string> parts;
  if (status.step_ms) parts.push_back(format_number(*status.step_ms, 1) + " ms a step");
  if (status.samples_per_s) parts.push_back(format_number(*status.samples_per_s, 2) + " samples/s");
  if (status.data_wait) parts.push_back("data wait " + format_number(100 * *status.data_wait, 1) + " %");
  if (status.gpu_util) parts.push_back("GPU " + format_number(100 * *status.gpu_util, 0) + " %");
  return join(parts, ", ");
}

std::string memory_text(const RunStatus& status) {
  std::vector<std::string> parts;
  if (status.host_rss_gb) parts.push_back(format_number(*status.host_rss_gb, 1) + " GB");
  if (status.gpu_mem_gb) parts.push_back(format_number(*status.gpu_mem_gb, 1) + " GB on the GPU");
  return join(parts, ", ");
}

std::string state_text(const RunView& view) {
  if (!view.alive) return ended(view);
  const double silent = seconds_between(view.status.heartbeat, utc_now());
  std::string text = view.status.phase;
  if (silent > 5) text += concat(", no sign of life for ", human_seconds(silent));
  return text;
}

std::string describe(const RunView& view) {
  std::string text = concat(view.folder.path().string(), ": ", state_text(view), "\n");
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += concat("  ", name, value, "\n");
  };
  line("progress    ", progress_text(view));
  line("speed       ", speed_text(view.status));
  line("memory      ", memory_text(view.status));
  if (view.alive && view.status.eta_s) line("ETA         ", human_seconds(*view.status.eta_s));
  line("checkpoint  ", view.record.last_checkpoint.empty() ? "none yet" : view.record.last_checkpoint);
  line("warning     ", view.status.last_warning.empty() ? view.record.last_warning : view.status.last_warning);
  return text;
}

void print(const std::vector<RunView>& views, const StatusOptions& options) {
  if (options.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const RunView& view : views) list.push_back(to_json(view));
    std::cout << json_text(list);
    return;
  }
  if (views.empty()) std::cout << "There is no run under ./runs.\n";
  for (const RunView& view : views) std::cout << describe(view);
  std::cout.flush();
}

bool any_alive(const std::vector<RunView>& views) {
  return std::any_of(views.begin(), views.end(), [](const RunView& view) { return view.alive; });
}

// With --json it waits, and the one document is how the runs ended.
void watch(const StatusOptions& options) {
  const bool screen = is_screen(STDOUT_FILENO);
  std::string shown;
  std::vector<RunView> views = look(options);
  for (; any_alive(views) && std::cout; views = look(options)) {
    std::string text;
    for (const RunView& view : views) text += describe(view);
    if (text != shown && !options.json) std::cout << (screen ? "\x1b[H\x1b[2J" : "") << text << std::flush;
    shown = text;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (screen && !options.json) std::cout << "\x1b[H\x1b[2J";
  print(views, options);
}

void define(CLI::App& command) {
  auto options = std::make_shared<StatusOptions>();
  command.add_option("run", options->runs, "Run folders; without any, all under ./runs");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.add_flag("--watch", options->watch, "Go on looking until every run has ended");
  command.callback([options] {
    if (options->watch) {
      watch(*options);
    } else {
      print(look(*options), *options);
    }
  });
}

}  // namespace

CommandEntry status_command() {
  return {"status", "How runs are doing: step, speed, data wait, memory, ETA, last checkpoint.", define};
}

}  // namespace vox::cli
