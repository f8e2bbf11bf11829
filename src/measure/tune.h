// `voxloom tune`: settings tried by short measured runs in child processes. What is tried next, the model of `profile`
// says; what the mathematics does not allow is left alone unless the user allows it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "measure/compare.h"
#include "measure/profile.h"

namespace vox {

enum class TrialVerdict { kBaseline, kBetter, kFaster, kNotBetter, kOutOfMemory, kTooSlow, kFailed, kOtherLoss };
const char* name_of(TrialVerdict verdict);

struct Trial {
  std::string name;                  // "data.num_workers=4", or the row of a table
  std::vector<std::string> changes;  // against the recipe, all of them
  TrialVerdict verdict = TrialVerdict::kFailed;
  double step_ms = 0, data_wait_ms = 0, samples_per_s = 0, voxels_per_s = 0, memory_gb = 0;
  std::optional<double> gpu_memory_gb;  // at its peak; absent on a CPU
  double gpu_total_gb = 0;
  std::optional<double> predicted_step_ms;  // what the model said before it ran
  std::optional<double> gain;               // samples a second against the one it started from
  std::optional<double> loss_difference;    // largest relative one of the first steps, where it must be none
  std::vector<double> losses;
  std::optional<double> equal_samples_loss;  // of a table: once it has seen as many samples as the recipe as it is
  std::vector<Suggestion> suggestions;
  std::string bottleneck, note;
  double seconds = 0;
};

struct TuneRequest {
  std::string recipe;
  std::vector<std::string> overrides;
  double minutes = 10;
  std::set<std::string> allow;  // batch, precision, patch
  std::string plan;             // empty: search; conservative, balanced, aggressive
  bool ablate = false;
  double memory_target = 0.9;  // of what the machine has
  std::string device;
  int64_t steps = 0;  // of a trial; 0: until its median is stable
  std::function<void(const Trial&)> on_trial;
};

struct TriedBatches {                // the largest that fits need not be the fastest a sample
  int64_t fastest = 0, largest = 0;  // as judged; that fits
  std::optional<int64_t> too_large;  // the smallest that did not fit
};

struct TuneResult {
  std::vector<Trial> trials;             // in the order they ran; the first is the recipe as it is
  std::vector<std::string> chosen;       // changes
  std::vector<std::string> evidence;     // of each
  std::optional<Comparison> comparison;  // chosen against the recipe, measured again in turns
  double speedup = 1;                    // of what is named next, a second, from that
  std::string speedup_of = "samples";    // voxels where the patch is another
  std::string speedup_note;              // where it could not be measured again, or was no faster then
  std::vector<std::string> not_tried;    // rungs or rows that the time did not reach
  std::optional<TriedBatches> batches;   // where more than one was tried
};

TuneResult tune_recipe(const TuneRequest& request);

// Takes back what was chosen where it was no faster when it was measured again. `work`: voxels of a step after by those
// before.
void require_faster_again(TuneResult& result, double work);

// A recipe that extends the one it began from; each changed line says why.
std::string tuned_yaml(const TuneRequest& request, const TuneResult& result, const std::string& output_file);

}  // namespace vox
