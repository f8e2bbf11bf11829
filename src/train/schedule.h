// The learning rate as a pure function of the step; only `plateau` has a memory, which a checkpoint keeps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/options.h"

namespace vox {

struct ScheduleLength {
  int64_t total_steps = 1;
  int64_t steps_per_epoch = 1;
};

class Schedule {
 public:
  Schedule(const TrainingOptions& options, const ScheduleLength& length);

  double lr(int64_t step) const;  // of the step about to be made; the first is 0

  // plateau: after each validation; higher is better where `higher_is_better`.
  void report(double score, bool higher_is_better);

  struct State {
    double best = 0;
    bool has_best = false;
    int64_t bad_validations = 0;
    int64_t reductions = 0;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  double after_warmup(int64_t step) const;

  TrainingOptions options_;
  ScheduleLength length_;
  State state_;
};

const std::vector<std::string>& schedule_names();

}  // namespace vox
