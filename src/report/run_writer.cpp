#include "report/run_writer.h"

#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/file.h"
#include "base/start_thread.h"
#include "report/foreign_error.h"
#include "report/machine.h"

namespace vox {
namespace {

constexpr auto kBeat = std::chrono::seconds(1);

std::string busy_sentence(const RunFolder& run) {
  std::string holder = "another process";
  if (RunFolder::is_run(run.path())) {
    const RunRecord record = read_record(run);
    if (!record.processes.empty() && record.processes.back().ended.empty())
      holder = concat("process ", record.processes.back().pid, " on ", record.processes.back().host);
  }
  return concat(run.path().string(), ": ", holder, " is writing this run; wait for it, end it with `voxloom stop ",
                run.path().string(), "`, or give another --run.");
}

}  // namespace

RunWriter::RunWriter(const RunFolder& folder, const RunFacts& facts) : folder_(folder) {
  lock_ = std::make_unique<FileLock>(folder_.lock(), busy_sentence(folder_));
  clear_stop(folder_);
  log_.reset(std::fopen(folder_.log().c_str(), "a"));
  if (!log_) throw_system_error("write", folder_.log().string(), errno);
  if (RunFolder::is_run(folder_.path())) {
    record_ = read_record(folder_);
    const std::optional<RunStatus> before = read_status(folder_);
    close_killed(record_, before);
    if (before) status_ = *before;  // until the first step, and for good where there is nothing to do
    status_.eta_s.reset();
  } else {
    record_.created = utc_now();
  }
  status_.phase = "loading";
  record_.commit = facts.commit;
  record_.command = facts.command;
  record_.libraries = facts.libraries;
  record_.machine = facts.machine.empty() ? machine_description() : facts.machine;
  add_process();
  heartbeat_ = start_thread<std::jthread>([this](std::stop_token stop) { beat(stop); });
}

RunWriter::~RunWriter() {
  try {
    finish(RunState::kFailed, "ended without saying why");
  } catch (const std::exception&) {
    // The disk is gone; whoever closes the run already handles a first error or has none to give.
  }
}

void RunWriter::add_process() {
  RunProcess self;
  self.pid = getpid();
  self.host = host_name();
  self.started = utc_now();
  self.start_ticks = process_start_ticks(self.pid);
  {
    const std::lock_guard lock(mutex_);
    record_.state = RunState::kRunning;
    record_.reason.clear();
    record_.processes.push_back(self);
  }
  save_progress();
}

RunRecord RunWriter::record() const {
  const std::lock_guard lock(mutex_);
  return record_;
}

void RunWriter::log(const std::string& line) {
  const std::lock_guard lock(mutex_);
  std::fputs(concat(utc_now(), " ", line, "\n").c_str(), log_.get());
  if (std::fflush(log_.get()) != 0) throw_system_error("write", folder_.log().string(), errno);
}

void RunWriter::warning(const std::string& line) {
  log("warning: " + line);
  const std::lock_guard lock(mutex_);
  record_.last_warning = line;
}

void RunWriter::update(const RunStatus& status) {
  const std::lock_guard lock(mutex_);
  status_ = status;
}

void RunWriter::step_done(int64_t step) {
  const std::lock_guard lock(mutex_);
  RunProcess& self = record_.processes.back();
  const bool first = self.first_step == 0;
  if (first) self.first_step = step;
  self.last_step = step;
  status_.step = first ? step : std::max(status_.step, step);
}

void RunWriter::checkpoint_written(const fs::path& file, int64_t step) {
  log(concat("checkpoint ", file.filename().string(), " at step ", step));
  {
    const std::lock_guard lock(mutex_);
    record_.last_checkpoint = concat(file.filename().string(), " at step ", step);
  }
  save_progress();
}

void RunWriter::forget_checkpoint() {
  {
    const std::lock_guard lock(mutex_);
    if (record_.last_checkpoint.empty()) return;
    record_.last_checkpoint.clear();
  }
  save_progress();
}

void RunWriter::beat(std::stop_token stop) {
  bool first_step_saved = false;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    RunStatus status = status_;
    status.last_checkpoint = record_.last_checkpoint;
    status.last_warning = record_.last_warning;
    status.heartbeat = utc_now();
    const bool worked = record_.processes.back().first_step != 0;
    lock.unlock();
    try {
      write_status(folder_, status);
      stop_.store(pending_stop(folder_));
      // So that a process killed before its first checkpoint still shows that it worked.
      if (worked && !first_step_saved) save_progress();
      first_step_saved = worked;
    } catch (const std::exception&) {
      // A heartbeat that cannot be written (a full disk) does not end the training; the next checkpoint will say.
    }
    lock.lock();
    wake_.wait_for(lock, stop, kBeat, [] { return false; });
  }
}

void RunWriter::save_progress() {
  const std::lock_guard one_at_a_time(save_mutex_);  // the later copy must be the later file
  write_record(folder_, record());
}

void RunWriter::finish(RunState state, const std::string& why) {
  const std::string reason = foreign_error(why).sentence;  // torch may have thrown it; the log has it all
  end(state, reason, reason.empty() ? name_of(state) : concat(name_of(state), ": ", reason));
}

void RunWriter::put_back(const RunRecord& former, const std::string& how) {
  end(former.state, former.reason, foreign_error(how).sentence);
}

void RunWriter::end(RunState state, const std::string& reason, const std::string& how) {
  if (heartbeat_.joinable()) {
    heartbeat_.request_stop();
    heartbeat_.join();
  }
  RunStatus status;
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    record_.state = state;
    record_.reason = reason;
    RunProcess& self = record_.processes.back();
    self.ended = utc_now();
    self.how = how;
    status = status_;
    status.last_checkpoint = record_.last_checkpoint;
    status.last_warning = record_.last_warning;
    status.heartbeat = self.ended;
  }
  write_status(folder_, status);
  save_progress();
}

}  // namespace vox
