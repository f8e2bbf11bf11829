// The files under RUN/checkpoints and the thread that writes them. `last` is replaced by rename and kept as `previous`
// until the next one is safe; `best` and `epoch-NNNN` are hard links to a finished file.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "train/checkpoint_file.h"

namespace vox {

struct CheckpointLinks {
  bool best = false;
  std::optional<int64_t> epoch;  // also keep it as epoch-NNNN
  int64_t keep_last = 3;         // of the epoch-NNNN files; 0: all
};

class CheckpointFolder {
 public:
  explicit CheckpointFolder(const std::filesystem::path& folder) : folder_(folder) {}

  void remove_leftovers() const;  // half-written files of a process that was killed; only under the lock of the run
  void write(const Metadata& metadata, const std::vector<TensorToStore>& tensors, const CheckpointLinks& links) const;
  // Every file there is, newest first; those that cannot be read come first, to be named. One name per file on disk.
  std::vector<std::filesystem::path> newest_first() const;
  bool holds(const std::filesystem::path& file) const;  // in this folder itself
  // `file`, one of these, is the best so far: `best` names it again where a process was killed before it could. A
  // `best` of a later step stays, unless it is damaged.
  void mend_best(const std::filesystem::path& file) const;
  // Every file of a later step, and those that cannot be read; true: there were some.
  bool move_later(int64_t step, const std::filesystem::path& to) const;
  std::filesystem::path last() const { return folder_ / "last.safetensors"; }
  std::filesystem::path best() const { return folder_ / "best.safetensors"; }

 private:
  void link(const std::filesystem::path& file, const std::filesystem::path& name) const;
  void prune_epochs(int64_t newest, int64_t keep) const;

  std::filesystem::path folder_;
};

struct FoundCheckpoint {
  CheckpointFile file;
  std::vector<std::string> damaged;  // what was tried before it, each with the reason
};
// The newest file that verifies; absent where the folder has none at all. Error where all are damaged.
std::optional<FoundCheckpoint> newest_intact(const CheckpointFolder& folder);

// One thread; one job under way and none waiting: a second submit waits for the first.
class BackgroundWriter {
 public:
  BackgroundWriter();
  ~BackgroundWriter();  // finishes what was submitted
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  void submit(std::function<void()> job);
  void rethrow_failure();  // of a job that has ended; cheap, call it every step
  void finish();           // waits, then rethrows
  bool busy() const;

 private:
  void work();
  void rethrow_locked(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;  // guards everything below but thread_
  std::condition_variable changed_;
  std::function<void()> job_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace vox
