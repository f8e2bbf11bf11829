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
#include "measure/traced_events.h"
#include "train/threads.h"
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
  bool details = true;           // operations, stages of the network, ceilings: a few steps more, and about a second
};

struct MemoryLine {
  std::string name;  // parameters, gradients, optimizer, activations, data_cache, other
  double gb = 0;     // 1e9 bytes
};

struct Ceilings {  // of this machine, measured: a product of matrices in the recipe's precision, a copy
  double flops = 0, bytes_per_s = 0;
};

struct StepWork {    // of one step, counted from the layers; 0 where the network cannot tell
  double flops = 0;  // two for each multiply-add, forward and backward
  double bytes = 0;  // at least: what convolutions read and write once each, and the optimizer
};

struct StepDetails {  // what a few steps under torch's profiler showed; empty where it was not asked for
  int64_t steps = 0;
  double step_ms = 0;                             // of those steps, which the profiler slows a little
  std::vector<OperationLine> slowest_operations;  // at most 15
  std::vector<StageLine> forward_stages;          // of the network, in order; they add up to its forward pass
  std::vector<StageLine> gpu_stages;              // time of kernels and copies by the stage that enqueued them
  std::optional<double> gpu_busy;                 // 0..1: of the time from the first kernel to the last
  double sync_points = 0;                         // a step: calls in which the host waits for the GPU
  StepWork work;
  Ceilings ceilings;
  std::vector<MemoryLine> memory;   // of the device that computes
  std::vector<TracedEvent> events;  // times as those of `spans`
  std::vector<SpanRecord> spans;    // of these steps
};

struct ThreadTrial {  // the step with another number of compute threads
  int threads = 0;
  double own_ms = 0;                  // its own time: the median
  double slow_ms = 0;                 // the upper quartile
  std::optional<double> handover_ns;  // as in StepRecord
};

constexpr int kUnbounded = 1 << 20;  // threads
int most_data_threads(Options options, ComputeOn where);

struct StepRecord {  // what was measured, before anything is concluded from it
  int64_t steps = 0, warm_up = 0;
  int64_t micro_batch = 1, accumulation = 1, steps_per_epoch = 0;
  int data_threads = 0, compute_threads = 0;
  int cpus = 1;                        // of those there are, within system.num_cpus
  int most_data_threads = kUnbounded;  // that data.num_workers can bring, because of system.num_cpus
  bool on_gpu = false;
  SpanSums sums;
  std::vector<SpanRecord> spans;
  double wall_ms = 0, cpu_ms = 0;    // of the measured steps together; of all threads
  double others_cpus = 0;            // CPUs that other processes, or the host of a virtual machine, kept busy meanwhile
  double others_cpus_in_trials = 0;  // likewise, after the measured steps
  std::optional<double> handover_ns;  // a cache line from one CPU to another and back: the median
  StoreCounts before, after;
  double rss_gb = 0, rss_peak_gb = 0;
  int64_t spare_bytes = 0;  // memory that this process could take on top
  std::optional<double> gpu_busy, gpu_mem_gb, gpu_total_gb;
  std::vector<double> losses;                 // of the first steps
  std::optional<double> checkpoint_ms;        // of one, on the thread that trains, where none was saved meanwhile
  std::optional<double> checkpoint_write_ms;  // of the same one, on the thread that writes it; so long at least
  std::optional<ThreadTrial> other_threads;
  std::optional<double> quiet_ms;  // the step's own time while nothing is logged or saved, where these took much
  std::optional<double> alone_ms;  // the step's own time while nobody makes samples, where the host had waited for them
  std::vector<StageLine> gpu_terms;  // on a GPU: loss terms by its clock (term_lines)
  StepDetails details;
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
// As training saves: every training.save_every epochs, and at the end of an epoch when the last one was long enough
// ago. A new best is not foreseen: they grow rare.
double foreseen_between_checkpoints(const StepRecord& record, const Options& options, double step_ms);
double steps_between_checkpoints(const StepRecord& record,
                                 const Options& options);  // measured; foreseen where none was
// What it takes to write one, as far as it was seen.
std::optional<double> checkpoint_write_ms(const StepRecord& record);
// Of each step: without waiting, and without what happens now and then.
std::vector<double> own_ms_of(const std::vector<StageTable>& steps);
double stage_ms(const std::vector<StageLine>& stages, const std::string& name);  // 0 where absent

// key=value for every option that differs.
std::vector<std::string> overrides_between(const Options& before, const Options& after);

// Spans and, of the last steps, operations and kernels, in the format that chrome://tracing, Perfetto and TensorBoard's
// profiler read. A folder gets a file of a name that TensorBoard finds.
std::string write_trace(const StepRecord& record, const std::string& path);

}  // namespace vox
