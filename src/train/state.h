// Where a run stands, besides its tensors: what a checkpoint's metadata says, there and back.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/options.h"
#include "nets/safetensors.h"
#include "train/schedule.h"

namespace vox {

struct MeanOf {  // of the finite values that were added
  double sum = 0;
  int64_t count = 0;
  void add(double value);
  std::optional<double> mean() const;
};

struct EpochSums {  // of the epoch under way
  MeanOf loss;
  std::map<std::string, MeanOf> terms;
  double seconds = 0, data_wait_s = 0;
};

struct TrainState {
  int64_t step = 0;             // steps done
  bool epoch_open = false;      // the last of them ended an epoch whose validation is not done
  int64_t steps_per_epoch = 0;  // fixed once known
  int64_t micro_batch = 0;
  int compute_threads = 0;
  Schedule::State schedule;
  std::optional<double> best_score;
  int64_t best_step = 0;
  int64_t validations_without_gain = 0;
  bool stopped_early = false;
  int64_t bad_steps = 0, bad_in_a_row = 0;
  EpochSums epoch_sums;
  std::map<std::string, double> unlogged_terms;  // since the last row of metrics.csv: the last value of each
  std::vector<std::string> skipped_cases;
  std::vector<std::string> training_cases, validation_cases;  // empty where a file does not name them yet
  std::vector<int64_t> class_values;                          // label value of each class; empty: 0, 1, 2, ...
  std::vector<std::array<double, 2>> input_statistics;        // mean and deviation of zscore with scope: dataset
  std::map<std::string, std::string> kernel_choices;          // ops/kernel_choice.h
  std::map<std::string, std::string> machine;  // torch, cpu, device, placement: where they differ, so may the rounding

  int64_t epoch() const { return steps_per_epoch > 0 ? step / steps_per_epoch : 0; }  // epochs done
};

Metadata to_metadata(const TrainState& state, const Options& options);
// Error where a key is missing or no number.
TrainState state_of(const Metadata& metadata, const std::string& path);
// Error where an option's text is none that metadata can hold.
void check_text(const Options& options);
Options options_of(const Metadata& metadata, const std::string& path);

}  // namespace vox
