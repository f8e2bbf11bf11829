#include "report/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "report/machine.h"

namespace vox {
namespace {

constexpr double kSilentSeconds = 60;  // on another machine: longer without a heartbeat counts as dead

int highest_number(const fs::path& parent, const std::string& name) {
  int highest = 0;
  std::error_code problem;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, problem)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(name + "-")) continue;
    int number = 0;
    const char* begin = file.data() + name.size() + 1;
    const char* end = file.data() + file.size();
    if (std::from_chars(begin, end, number).ptr == end) highest = std::max(highest, number);
  }
  return highest;
}

std::string three_digits(int number) {
  const std::string digits = std::to_string(number);
  return digits.size() >= 3 ? digits : std::string(3 - digits.size(), '0') + digits;
}

}  // namespace

RunFolder RunFolder::create(const fs::path& parent, const std::string& name) {
  make_folders(parent);
  for (int number = highest_number(parent, name) + 1;; ++number) {
    const fs::path path = parent / (name + "-" + three_digits(number));
    if (mkdir(path.c_str(), 0777) == 0) return create_at(path);  // who makes the folder has the number
    if (errno != EEXIST) throw_system_error("make the folder", path.string(), errno);
  }
}

RunFolder RunFolder::create_at(const fs::path& path) {
  const RunFolder run(path);
  make_folders(run.checkpoints());
  return run;
}

RunFolder RunFolder::open(const fs::path& path) {
  VOX_CHECK(fs::is_directory(path), path.string(),
            ": there is no such run folder; `voxloom status` lists the runs under ./runs.");
  VOX_CHECK(is_run(path), path.string(), ": this folder is no run: it has no run.json.");
  return RunFolder(path);
}

RunFolder RunFolder::open_measured(const fs::path& path) {
  const RunFolder folder(path);
  return fs::is_regular_file(folder.profile()) || fs::is_regular_file(folder.tune()) ? folder : open(path);
}

bool RunFolder::is_run(const fs::path& path) {
  return fs::is_regular_file(path / "run.json");
}

std::string RunFolder::name() const {
  const fs::path absolute = fs::absolute(path_).lexically_normal();
  return (absolute.has_filename() ? absolute : absolute.parent_path()).filename().string();
}

bool is_alive(const RunRecord& record, const std::optional<RunStatus>& status) {
  if (record.state != RunState::kRunning || record.processes.empty()) return false;
  const RunProcess& last = record.processes.back();
  if (!last.ended.empty()) return false;
  if (last.host == host_name()) {
    const uint64_t ticks = process_start_ticks(last.pid);
    return ticks != 0 && ticks == last.start_ticks;
  }
  return status && seconds_between(status->heartbeat, utc_now()) < kSilentSeconds;
}

void request_stop(const RunFolder& run, StopRequest at) {
  VOX_ASSERT(at != StopRequest::kNone);
  write_file(run.stop_request(), at == StopRequest::kAtEpoch ? "epoch\n" : "step\n");
}

StopRequest pending_stop(const RunFolder& run) {
  if (access(run.stop_request().c_str(), F_OK) != 0) return StopRequest::kNone;
  return trim(read_file(run.stop_request())) == "epoch" ? StopRequest::kAtEpoch : StopRequest::kAtStep;
}

void clear_stop(const RunFolder& run) {
  if (unlink(run.stop_request().c_str()) != 0 && errno != ENOENT)
    throw_system_error("remove", run.stop_request().string(), errno);
}

void close_killed(RunRecord& record, const std::optional<RunStatus>& status) {
  for (RunProcess& process : record.processes) {
    if (!process.ended.empty()) continue;
    process.how = "killed";
    if (!status) continue;
    process.ended = status->heartbeat;
    if (process.first_step != 0) process.last_step = std::max(process.last_step, status->step);
  }
}

}  // namespace vox
