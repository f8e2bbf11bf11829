#include "measure/tune_trials.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/span.h"
#include "base/text.h"
#include "measure/doctor_files.h"

namespace vox {
namespace {

constexpr double kTrialSeconds = 10;   // of steps
constexpr int64_t kRungSteps = 50;     // of the guides' ladder
constexpr double kRungSeconds = 60;    // at most
constexpr double kLongestTrial = 180;  // with opening the data
constexpr double kShortestTrial = 5;
constexpr double kGain = 1.02;  // voxels a second: less is not worth a change
constexpr double kSecondsOfTurns = 4, kSecondsOfShortTurns = 1.5;
// Steps of a table whose losses are compared, which every trial reaches: with those before it measures. A doubled
// batch has seen as many samples after half of them.
constexpr int64_t kComparedLosses = 16, kStepsBefore = 5;

int64_t usable_memory() {  // of the machine, or of the container where that has less
  return count_memory({}).usable();
}

bool finite_losses(const Trial& trial) {
  return std::all_of(trial.losses.begin(), trial.losses.end(), [](double loss) { return std::isfinite(loss); });
}

std::string percent_more(double gain) {
  return concat(gain < 1 ? "" : "+", format_number(100 * (gain - 1), 1), " %");
}

TrialVerdict verdict_of(ChildEnd end) {
  switch (end) {
    case ChildEnd::kOutOfMemory:
      return TrialVerdict::kOutOfMemory;
    case ChildEnd::kTooSlow:
      return TrialVerdict::kTooSlow;
    case ChildEnd::kFailed:
      return TrialVerdict::kFailed;
    case ChildEnd::kDone:
      break;
  }
  return TrialVerdict::kNotBetter;
}

}  // namespace

const char* name_of(TrialVerdict verdict) {
  switch (verdict) {
    case TrialVerdict::kBaseline:
      return "start";
    case TrialVerdict::kBetter:
      return "kept";
    case TrialVerdict::kFaster:
      return "faster";
    case TrialVerdict::kNotBetter:
      return "not better";
    case TrialVerdict::kOutOfMemory:
      return "out of memory";
    case TrialVerdict::kTooSlow:
      return "out of time";
    case TrialVerdict::kFailed:
      return "failed";
    case TrialVerdict::kOtherLoss:
      return "other loss";
  }
  return "";
}

bool worked(const Trial& trial) {
  return trial.step_ms > 0;
}

std::vector<std::string> words_of(const Changes& changes) {
  std::vector<std::string> words;
  for (const auto& [key, value] : changes) words.push_back(concat(key, "=", value));
  return words;
}

Changes changes_of(const std::vector<std::string>& words) {
  return merged({}, words);
}

Changes merged(Changes changes, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    changes[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return changes;
}

std::optional<double> loss_difference(const Trial& first, const Trial& second) {
  const size_t count = std::min(first.losses.size(), second.losses.size());
  if (count == 0) return std::nullopt;
  double largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const double scale = std::max({std::abs(first.losses[i]), std::abs(second.losses[i]), 1e-12});
    const double difference = std::abs(first.losses[i] - second.losses[i]) / scale;
    if (!(difference <= largest)) largest = difference;  // NaN too
  }
  return largest;
}

std::string speed_text(const Trial& before, const Trial& after) {
  const double samples = after.samples_per_s / before.samples_per_s, voxels = after.voxels_per_s / before.voxels_per_s;
  if (std::abs(voxels / samples - 1) < 1e-9)
    return concat(format_number(before.samples_per_s, 2), " -> ", format_number(after.samples_per_s, 2), " samples/s");
  return concat(format_number(1e-6 * before.voxels_per_s, 3), " -> ", format_number(1e-6 * after.voxels_per_s, 3),
                " million voxels/s");
}

double seconds_of_the_clock() {
  static const Clock::time_point begin = Clock::now();
  return seconds_since(begin);
}

std::optional<TriedBatches> tried_batches(TrialRunner& runner, const Changes& chosen) {
  const auto batch_of = [&](const Changes& changes) { return runner.config_with(changes).options.data.batch_size; };
  std::set<int64_t> all;
  TriedBatches found{.fastest = batch_of(chosen)};
  for (const Trial& trial : runner.trials()) {
    const int64_t batch = batch_of(changes_of(trial.changes));
    all.insert(batch);
    if (trial.verdict == TrialVerdict::kOutOfMemory)
      found.too_large = std::min(found.too_large.value_or(batch), batch);
    else if (worked(trial))
      found.largest = std::max(found.largest, batch);
  }
  if (found.too_large && *found.too_large <= found.largest) found.too_large.reset();  // with other settings it fits
  return all.size() > 1 ? std::optional(found) : std::nullopt;
}

TrialRunner::TrialRunner(const TuneRequest& request, TrialTools tools)
    : request_(request),
      tools_(std::move(tools)),
      config_(load_config(request.recipe, request.overrides)),
      begin_(tools_.seconds()),
      memory_bytes_(static_cast<int64_t>(request.memory_target * static_cast<double>(usable_memory()))) {}

double TrialRunner::seconds_left() const {
  return 60 * request_.minutes - (tools_.seconds() - begin_);
}

bool TrialRunner::over_memory_target(const Trial& trial) const {
  const bool of_gpu = trial.gpu_memory_gb && *trial.gpu_memory_gb > request_.memory_target * trial.gpu_total_gb;
  return of_gpu || trial.memory_gb * 1e9 > static_cast<double>(memory_bytes_);
}

Config TrialRunner::config_with(const Changes& changes) const {
  std::vector<std::string> words = request_.overrides;
  for (const std::string& word : words_of(changes)) words.push_back(word);
  return load_config(request_.recipe, words);
}

void TrialRunner::judged(const Trial& trial) const {
  if (request_.on_trial) request_.on_trial(trial);
}

std::vector<std::string> TrialRunner::recipe_with(const Trial& trial) const {
  std::vector<std::string> words{request_.recipe};
  words.insert(words.end(), request_.overrides.begin(), request_.overrides.end());
  words.insert(words.end(), trial.changes.begin(), trial.changes.end());
  return words;
}

void TrialRunner::judge(Trial& trial, const Trial& base) const {
  trial.gain = trial.voxels_per_s / base.voxels_per_s;
  trial.verdict = TrialVerdict::kNotBetter;
  trial.note.clear();
  if (!finite_losses(trial)) trial.verdict = TrialVerdict::kOtherLoss;
  if (over_memory_target(trial)) trial.verdict = TrialVerdict::kOutOfMemory;
  if (trial.verdict != TrialVerdict::kNotBetter || *trial.gain <= kGain) return;
  const double voxels_ratio = *trial.gain * trial.step_ms / base.step_ms;  // of a step
  CompareRequest request{.first = recipe_with(base), .second = recipe_with(trial), .device = request_.device};
  request.seconds = request_.steps > 0 ? kSecondsOfShortTurns : kSecondsOfTurns;
  request.warm_cache = true;
  request.threshold = voxels_ratio;
  const double start = tools_.seconds();
  try {
    const Comparison turns = tools_.compare(request);
    trial.gain = voxels_ratio / turns.ratio;
    const double surely = voxels_ratio / turns.interval.high;
    const bool enough = turns.ratios.size() >= kLeastForInterval || plainly_decided(turns.ratios, voxels_ratio);
    if (*trial.gain > kGain && surely > 1 && enough) trial.verdict = TrialVerdict::kBetter;
    trial.note = concat("in ", turns.ratios.size(), " turns ", percent_more(*trial.gain), ", ",
                        coverage_text(turns.ratios.size()), ": ", percent_more(surely), " to ",
                        percent_more(voxels_ratio / turns.interval.low), enough ? "" : "; too few turns to be sure");
  } catch (const Error& error) {
    trial.note = concat("could not be measured again: ", error.what());
  }
  trial.seconds += tools_.seconds() - start;
}

void TrialRunner::read_result(const std::string& document, Trial& trial) const {
  const nlohmann::json result = nlohmann::json::parse(document);
  trial.step_ms = result.at("step_ms");
  trial.data_wait_ms = result.at("data_wait_ms");
  trial.samples_per_s = result.at("samples_per_s");
  const nlohmann::json& memory = result.at("memory");
  trial.memory_gb = memory.at("host_peak_gb");
  if (!memory.at("gpu_gb").is_null()) {
    trial.gpu_memory_gb = memory.at("gpu_gb");
    trial.gpu_total_gb = memory.at("gpu_total_gb");
  }
  trial.bottleneck = result.at("bottleneck").at("name");
  trial.note = result.at("bottleneck").at("evidence");
  for (const auto& loss : result.at("losses"))  // JSON has no NaN: it comes as null
    trial.losses.push_back(loss.is_null() ? std::nan("") : loss.get<double>());
  for (const auto& one : result.at("suggestions"))
    trial.suggestions.push_back({one.at("changes").get<std::vector<std::string>>(), one.at("predicted_step_ms"),
                                 one.at("why"), one.at("same_result")});
  const Options options = config_with(changes_of(trial.changes)).options;
  trial.voxels_per_s = trial.samples_per_s * static_cast<double>(options.data.patch_size.voxels());
}

Trial& TrialRunner::run(const std::string& name, const Changes& changes,
                        const std::optional<double>& predicted_step_ms) {
  Trial trial;
  trial.name = name;
  trial.changes = words_of(changes);
  trial.predicted_step_ms = predicted_step_ms;
  std::vector<std::string> arguments{"profile", request_.recipe, "--alone", "--json", "--warm-cache"};
  const bool rung = !request_.plan.empty();
  const int64_t steps = rung && request_.steps == 0 ? kRungSteps : request_.steps;
  arguments.insert(arguments.end(), {"--seconds", shortest(rung ? kRungSeconds : kTrialSeconds)});
  if (request_.ablate) {
    const int64_t reached = steps > 0 ? kStepsBefore + steps : kComparedLosses;
    arguments.insert(arguments.end(), {"--losses", concat(std::min(reached, kComparedLosses))});
  }
  if (steps > 0) arguments.insert(arguments.end(), {"--steps", concat(steps)});
  const std::vector<std::string> device = device_words(request_.device);
  arguments.insert(arguments.end(), device.begin(), device.end());
  arguments.insert(arguments.end(), request_.overrides.begin(), request_.overrides.end());
  arguments.insert(arguments.end(), trial.changes.begin(), trial.changes.end());
  const bool first = trials_.empty();  // it may have to prepare the data
  const double limit = first ? std::max(60 * request_.minutes, kShortestTrial)
                             : std::clamp(seconds_left(), kShortestTrial, kLongestTrial);
  const ChildResult result = tools_.run(arguments, {.seconds = limit, .resident_bytes = memory_bytes_});
  trial.seconds = result.seconds;
  trial.verdict = verdict_of(result.end);
  if (result.end == ChildEnd::kDone)
    read_result(result.output, trial);
  else
    trial.note = result.end == ChildEnd::kTooSlow ? concat("ended after ", human_seconds(result.seconds)) : result.said;
  if (trial.memory_gb == 0) trial.memory_gb = static_cast<double>(result.peak_bytes) / 1e9;
  trials_.push_back(std::move(trial));
  return trials_.back();
}

}  // namespace vox
