// Several processes that train one network, each on a GPU of its own, or all on the device that is named. The
// micro-batches of a step are dealt out among them, their gradients are summed, and each makes the same update. The
// first process leads: it has the schedule, validates, saves and writes. The others follow it step by step and know
// nothing that it does not.
#pragma once

#include <ATen/core/Tensor.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "config/options.h"
#include "train/team_sum.h"

namespace vox {

int team_size(const SystemOptions& system);       // processes that system.num_gpus asks for
int64_t samples_of_step(const Options& options);  // of all processes together
Options share_of(Options options);                // with the threads and the memory that one process may take

struct TeamStart {  // what followers are told before the first step
  int64_t step = 0, end_step = 0, micro_batch = 0;
  int64_t numbers = 0;  // most that sum() adds up at once
  int64_t compute_threads = 1;
  std::string checkpoint;  // that the run goes on from; empty: none
  bool on_gpus = false;    // each process has one of its own
  uint64_t cases = 0;      // key_of_cases(): all must train on the same
};

struct Follower {
  pid_t process = 0;
  std::string log;  // file that it prints to
};

class Team {
 public:
  // Starts the process of this place; `table` is the file descriptor that it shares.
  using Starter = std::function<Follower(Place place, int table)>;
  static std::unique_ptr<Team> lead(int count, const TeamStart& start, const Starter& starter);
  static std::unique_ptr<Team> follow(int table, int index);
  ~Team();  // the leader's: the followers end

  const Place& place() const { return place_; }
  TeamStart start() const;

  // Waits until all are ready for the first step. `meanwhile` is called now and then; what it throws ends the wait.
  void assemble(const at::Device& device, const std::function<void()>& meanwhile = {});
  // The leader lets the others begin a step, without waiting for the device. Error where one of them has ended.
  void allow_step(int64_t step, double lr);
  std::optional<double> wait_for_step(int64_t step);  // a follower's: the learning rate; absent: the run is over
  // Adds up tensors (float32, dense, the same ones everywhere) in place. All processes get the same bits.
  void sum(const std::vector<at::Tensor>& tensors);
  void check();  // Error where another process has ended

 private:
  struct Table;
  Team(int file, Place place);
  void wait_until(const std::function<bool()>& done, const std::function<void()>& meanwhile = {});
  void meet(const std::function<void()>& meanwhile = {});  // all processes
  void sum_on_host(const std::vector<at::Tensor>& tensors);
  float* numbers_of(int index) const;  // for the sum under way
  bool look_after_followers();         // true: one has ended

  int file_;
  Place place_;
  Table* table_ = nullptr;
  size_t bytes_ = 0;
  int64_t meetings_ = 0, host_sums_ = 0;
  bool assembled_ = false;
  std::unique_ptr<TeamSum> device_sum_;
  std::vector<Follower> followers_;
  std::mutex ended_mutex_;
  std::string ended_;  // how the first of them ended
  std::jthread watch_;
};

}  // namespace vox
