// The one process that writes a run: holds its lock, keeps run.json, log.txt and the heartbeat in status.json. A thread
// of its own does the writing, so that a slow disk never makes a step wait. Any thread may call any function.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "report/run_folder.h"

namespace vox {

class FileLock;

struct RunFacts {  // what run.json says of this process
  std::string commit, command;
  std::map<std::string, std::string> libraries;  // name -> version
  std::string machine;                           // see machine_description() in report/machine.h
};

class RunWriter {
 public:
  // Error where another process holds the run. Ends the record of a process that was killed, adds this one, and
  // forgets any stop request from before.
  RunWriter(const RunFolder& folder, const RunFacts& facts);
  // A run that was not finished by finish() is recorded as failed.
  ~RunWriter();
  RunWriter(const RunWriter&) = delete;
  RunWriter& operator=(const RunWriter&) = delete;

  const RunFolder& folder() const { return folder_; }
  RunRecord record() const;

  void log(const std::string& line);      // into log.txt with the time
  void warning(const std::string& line);  // as log, and the last warning of `voxloom status`
  void update(const RunStatus& status);   // costs a copy; the heartbeat writes it at most once a second
  void step_done(int64_t step);           // this process executed `step`
  void save_progress();                   // into run.json, before a checkpoint that a killed process would leave behind
  void checkpoint_written(const fs::path& file, int64_t step);
  void forget_checkpoint();                                    // the run has none, or none any more
  StopRequest stop_requested() const { return stop_.load(); }  // looked up once a second
  void finish(RunState state, const std::string& reason = "");
  // The same for a start that changed nothing: the run is what `former` says, and `how` is how this process ended.
  void put_back(const RunRecord& former, const std::string& how);

 private:
  void add_process();
  void end(RunState state, const std::string& reason, const std::string& how);
  void beat(std::stop_token stop);

  const RunFolder folder_;
  std::unique_ptr<FileLock> lock_;
  std::atomic<StopRequest> stop_{StopRequest::kNone};
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::mutex save_mutex_;     // one writer of run.json at a time
  mutable std::mutex mutex_;  // guards everything below
  std::unique_ptr<std::FILE, CloseFile> log_;
  RunRecord record_;
  RunStatus status_;
  bool finished_ = false;
  std::condition_variable_any wake_;
  std::jthread heartbeat_;  // last: joined before what it uses goes
};

}  // namespace vox
