// A run folder: where its files lie, what run.json and status.json say, and the request that ends a run from outside.
// Steps count from 1: a run that has done N steps stands at step N.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace vox {

namespace fs = std::filesystem;

class RunFolder {
 public:
  // Makes `parent/<name>-NNN` with the next free number; two processes at once get two numbers.
  static RunFolder create(const fs::path& parent, const std::string& name);
  // The folder that --run names: made where it is missing.
  static RunFolder create_at(const fs::path& path);
  // An existing run; Error where there is none.
  static RunFolder open(const fs::path& path);
  static bool is_run(const fs::path& path);
  // A folder that `profile --run` or `tune --run` left its result in: a run, or nothing but that.
  static RunFolder open_measured(const fs::path& path);

  const fs::path& path() const { return path_; }
  std::string name() const;
  fs::path config() const { return path_ / "config.yaml"; }
  fs::path record() const { return path_ / "run.json"; }
  fs::path status() const { return path_ / "status.json"; }
  fs::path metrics() const { return path_ / "metrics.csv"; }
  fs::path log() const { return path_ / "log.txt"; }
  fs::path report() const { return path_ / "report.html"; }
  fs::path profile() const { return path_ / "profile.json"; }
  fs::path tune() const { return path_ / "tune.json"; }
  fs::path checkpoints() const { return path_ / "checkpoints"; }
  fs::path images() const { return path_ / "images"; }
  fs::path lock() const { return path_ / ".lock"; }
  fs::path stop_request() const { return path_ / ".stop"; }

 private:
  explicit RunFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

enum class RunState { kRunning, kFinished, kStopped, kFailed };
const char* name_of(RunState state);  // "running", "finished", "stopped", "failed"

struct RunProcess {  // one process that worked on the run
  int64_t pid = 0;
  std::string host, started, ended;  // times as 2026-01-31T12:00:00Z; ended is empty while it runs or was killed
  uint64_t start_ticks = 0;          // of the process, so that another one with its number is not taken for it
  int64_t first_step = 0;            // 0 while it has done none
  int64_t last_step = 0;
  std::string how;  // how it ended: "finished", "stopped: SIGINT", "failed: ...", "killed"
};

struct RunRecord {  // run.json
  std::string commit, machine, command, created;
  std::map<std::string, std::string> libraries;  // name -> version
  RunState state = RunState::kRunning;
  std::string reason;  // why it stopped or failed
  std::string last_checkpoint, last_warning;
  std::vector<RunProcess> processes;
};
RunRecord read_record(const RunFolder& run);
void write_record(const RunFolder& run, const RunRecord& record);

struct RunStatus {  // status.json, about a second old at most
  int64_t step = 0, total_steps = 0, epoch = 0, total_epochs = 0;
  std::string phase = "training";  // "loading", "training", "validation", "saving"
  std::optional<double> loss, step_ms, samples_per_s;
  std::optional<double> data_wait;                                 // fraction of the time, 0..1
  std::optional<double> host_rss_gb, gpu_mem_gb, gpu_util, eta_s;  // gpu_util 0..1
  std::string last_checkpoint, last_warning, heartbeat;            // filled in by RunWriter
};
std::optional<RunStatus> read_status(const RunFolder& run);
void write_status(const RunFolder& run, const RunStatus& status);

// True while the last process of the run lives: by its number on this machine, by its heartbeat on another.
bool is_alive(const RunRecord& record, const std::optional<RunStatus>& status);
// A process that was killed could not say so. The heartbeat knows how far it came, to about a second.
void close_killed(RunRecord& record, const std::optional<RunStatus>& status);

enum class StopRequest { kNone, kAtStep, kAtEpoch };
void request_stop(const RunFolder& run, StopRequest at);
StopRequest pending_stop(const RunFolder& run);
void clear_stop(const RunFolder& run);

}  // namespace vox
