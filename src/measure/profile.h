// `voxloom profile`: real steps of a recipe in a temporary run, taken apart. What limits the step, and what a change
// would bring, is computed from what was measured here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "measure/profile_spans.h"
#include "volume/store.h"

namespace vox {

enum class ProfilePart { kAll, kDataOnly, kNoData };

struct ProfileRequest {
  Config config;
  std::string device;  // empty: chosen
  ProfilePart part = ProfilePart::kAll;
  std::optional<int64_t> steps;  // to measure; absent: until the median is stable
  bool warm_cache = false;       // every volume that is kept in memory is there before anything is measured
  int64_t losses = 8;            // of the first steps, to compare settings by
  double most_seconds = 60;      // of steps, warm-up included
};

struct StepRecord {  // what was measured, before anything is concluded from it
  int64_t steps = 0, warm_up = 0;
  int64_t micro_batch = 1, accumulation = 1, steps_per_epoch = 0;
  int data_threads = 0, compute_threads = 0, cpus = 1;
  bool on_gpu = false;
  SpanSums sums;
  std::vector<SpanRecord> spans;
  double wall_ms = 0, cpu_ms = 0;  // of the measured steps together; of all threads
  StoreCounts before, after;
  double rss_gb = 0, rss_peak_gb = 0;
  std::optional<double> gpu_busy, gpu_mem_gb;
  std::vector<double> losses;           // of the first steps
  std::optional<double> checkpoint_ms;  // of one, on the thread that trains, where no epoch ended meanwhile
  std::optional<std::pair<int, double>> other_threads;  // compute threads, and the step's own time with so many
};

struct StageLine {
  std::string name;
  double ms = 0;  // a step
};

struct Suggestion {
  std::vector<std::string> changes;  // key=value
  double predicted_step_ms = 0;
  std::string why;
  bool same_result = true;  // the mathematics stays what it is
};

struct Bottleneck {
  std::string name, evidence;
};

struct Profile {
  StepRecord record;
  double step_ms = 0, data_wait_ms = 0;
  double own_ms = 0;                   // of the step, without waiting for data
  std::vector<StageLine> step_stages;  // of the thread that trains; they add up to step_ms
  std::vector<StageLine> data_stages;  // summed over the threads that make samples, beside the step
  std::optional<double> miss_ms;       // what one costs a thread
  Bottleneck bottleneck;
  std::vector<Suggestion> suggestions;  // the most effective first, those that change the result last
};

Profile profile_recipe(const ProfileRequest& request);

// Of a pipeline without a step: `own_ms` is 0.
StepRecord record_data(const ProfileRequest& request);
// Steps of a real run in a folder that is gone afterwards.
StepRecord record_steps(const ProfileRequest& request);

// From what was measured to times, a cause and changes.
Profile conclude(StepRecord record, const Options& options);
Bottleneck find_bottleneck(const Profile& profile, const Options& options);
std::vector<Suggestion> suggest_changes(const Profile& profile, const Options& options);
double stage_ms(const std::vector<StageLine>& stages, const std::string& name);  // 0 where absent

// key=value for every option that differs.
std::vector<std::string> overrides_between(const Options& before, const Options& after);

// In the format that chrome://tracing, Perfetto and TensorBoard's profiler read. A folder gets a file of a name that
// TensorBoard finds.
std::string write_trace(const std::vector<SpanRecord>& spans, const std::string& path);

}  // namespace vox
