// run.json and status.json: to JSON and back.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/shallow_json.h"
#include "base/text.h"
#include "report/run_folder.h"

namespace vox {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kNotJson = 101;  // of the library's errors

RunState state_from_name(const std::string& name, const std::string& path) {
  for (const RunState state : {RunState::kRunning, RunState::kFinished, RunState::kStopped, RunState::kFailed})
    if (name == name_of(state)) return state;
  throw Error(concat(path, ": a run's state is never \"", printable(name), "\"; was the file edited? Restore it."));
}

Json to_json(const RunProcess& process) {
  Json json{{"pid", process.pid}, {"host", process.host}, {"started", process.started}};
  json["ended"] = process.ended.empty() ? Json() : Json(process.ended);
  json["first_step"] = process.first_step;
  json["last_step"] = process.last_step;
  json["how"] = process.how.empty() ? Json() : Json(process.how);
  json["start_ticks"] = process.start_ticks;
  return json;
}

std::string text_or_empty(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : std::string();
}

RunProcess process_from(const Json& json) {
  RunProcess process;
  process.pid = json.value("pid", int64_t{0});
  process.host = text_or_empty(json, "host");
  process.started = text_or_empty(json, "started");
  process.ended = text_or_empty(json, "ended");
  process.first_step = json.value("first_step", int64_t{0});
  process.last_step = json.value("last_step", int64_t{0});
  process.how = text_or_empty(json, "how");
  process.start_ticks = json.value("start_ticks", uint64_t{0});
  return process;
}

RunRecord record_from(const Json& json, const std::string& path) {
  RunRecord record;
  record.commit = text_or_empty(json, "commit");
  record.machine = text_or_empty(json, "machine");
  record.command = text_or_empty(json, "command");
  record.created = text_or_empty(json, "created");
  if (json.contains("libraries")) record.libraries = json["libraries"].get<std::map<std::string, std::string>>();
  record.state = state_from_name(json.value("state", std::string("running")), path);
  record.reason = text_or_empty(json, "reason");
  record.last_checkpoint = text_or_empty(json, "last_checkpoint");
  record.last_warning = text_or_empty(json, "last_warning");
  if (json.contains("processes"))
    for (const Json& process : json["processes"]) record.processes.push_back(process_from(process));
  return record;
}

int64_t whole_or_zero(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number_integer() ? json[key].get<int64_t>() : 0;
}

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

std::optional<double> optional_number(const Json& json, const char* key) {
  if (!json.contains(key) || !json[key].is_number()) return std::nullopt;
  return json[key].get<double>();
}

// Without the sync of write_file: a lost heartbeat costs nothing, a sync every second would.
void write_unsynced(const fs::path& path, const std::string& text) {
  const fs::path temporary = path.parent_path() / ("." + path.filename().string() + ".part");
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  if (!file) throw_system_error("write", path.string(), errno);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed || std::rename(temporary.c_str(), path.c_str()) != 0)
    throw_system_error("write", path.string(), errno);
}

}  // namespace

const char* name_of(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "running";
    case RunState::kFinished:
      return "finished";
    case RunState::kStopped:
      return "stopped";
    case RunState::kFailed:
      return "failed";
  }
  return "";
}

RunRecord read_record(const RunFolder& run) {
  try {
    return record_from(parse_shallow<Json>(read_file(run.record()), /*allow_exceptions=*/true), run.record().string());
  } catch (const nlohmann::json::exception& error) {
    throw Error(concat(run.record().string(), ": this run's record is not what a run writes (",
                       error.id == kNotJson ? "no valid JSON" : "a value of the wrong type",
                       "); was the file edited or cut? Restore it or start a new run."));
  }
}

void write_record(const RunFolder& run, const RunRecord& record) {
  Json json{{"commit", record.commit},
            {"machine", record.machine},
            {"libraries", record.libraries},
            {"command", record.command},
            {"created", record.created},
            {"state", name_of(record.state)},
            {"reason", record.reason},
            {"last_checkpoint", record.last_checkpoint},
            {"last_warning", record.last_warning},
            {"processes", Json::array()}};
  for (const RunProcess& process : record.processes) json["processes"].push_back(to_json(process));
  write_file(run.record(), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::optional<RunStatus> read_status(const RunFolder& run) {
  if (!fs::exists(run.status())) return std::nullopt;
  const Json json = parse_shallow<Json>(read_file(run.status()));
  if (json.is_discarded() || !json.is_object()) return std::nullopt;  // a heartbeat is no evidence worth failing for
  RunStatus status;
  status.step = whole_or_zero(json, "step");
  status.total_steps = whole_or_zero(json, "total_steps");
  status.epoch = whole_or_zero(json, "epoch");
  status.total_epochs = whole_or_zero(json, "total_epochs");
  status.phase = text_or_empty(json, "phase");
  status.loss = optional_number(json, "loss");
  status.step_ms = optional_number(json, "step_ms");
  status.samples_per_s = optional_number(json, "samples_per_s");
  status.data_wait = optional_number(json, "data_wait");
  status.host_rss_gb = optional_number(json, "host_rss_gb");
  status.gpu_mem_gb = optional_number(json, "gpu_mem_gb");
  status.gpu_util = optional_number(json, "gpu_util");
  status.eta_s = optional_number(json, "eta_s");
  status.last_checkpoint = text_or_empty(json, "last_checkpoint");
  status.last_warning = text_or_empty(json, "last_warning");
  status.heartbeat = text_or_empty(json, "heartbeat");
  return status;
}

void write_status(const RunFolder& run, const RunStatus& status) {
  const Json json{{"step", status.step},
                  {"total_steps", status.total_steps},
                  {"epoch", status.epoch},
                  {"total_epochs", status.total_epochs},
                  {"phase", status.phase},
                  {"loss", number_or_null(status.loss)},
                  {"step_ms", number_or_null(status.step_ms)},
                  {"samples_per_s", number_or_null(status.samples_per_s)},
                  {"data_wait", number_or_null(status.data_wait)},
                  {"host_rss_gb", number_or_null(status.host_rss_gb)},
                  {"gpu_mem_gb", number_or_null(status.gpu_mem_gb)},
                  {"gpu_util", number_or_null(status.gpu_util)},
                  {"eta_s", number_or_null(status.eta_s)},
                  {"last_checkpoint", status.last_checkpoint},
                  {"last_warning", status.last_warning},
                  {"heartbeat", status.heartbeat}};
  write_unsynced(run.status(), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace vox
