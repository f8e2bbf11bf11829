// A machine for tests of tune: the times of a step follow from the settings, the clock is turned by the trials, and
// every profile's suggestions are known.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "measure/tune_trials.h"

namespace vox {

inline constexpr double kSecondsOfATrial = 10, kSecondsOfTurns = 4;

struct Measured {  // what the profile of some settings says
  double step_ms = 10;
  std::vector<Suggestion> suggestions{};
  double host_gb = 0.1;
  std::optional<double> gpu_gb{};  // of 100
  std::vector<double> losses{0.7, 0.6, 0.5};
  ChildEnd end = ChildEnd::kDone;
};

std::string profile_document(const Options& options, const Measured& found);  // as `profile --json` prints it

class Machine {
 public:
  explicit Machine(std::function<Measured(const Options&)> measure) : measure_(std::move(measure)) {
    write_file(recipe_,
               "data: {patch_size: [16, 16, 16], batch_size: 1, num_workers: 1, prefetch_factor: 1}\n"
               "training: {precision: 32}\nmodel: {filters: [8, 16, 32]}\n");
  }
  ~Machine() { fs::remove(recipe_); }

  TuneRequest request() const { return {.recipe = recipe_, .overrides = {}, .minutes = 10}; }
  TuneResult search(const TuneRequest& request) { return with_runner(request, search_settings); }
  TuneResult climb(const TuneRequest& request) { return with_runner(request, climb_plan); }
  TuneResult ablate(const TuneRequest& request) { return with_runner(request, ablate_settings); }

  // Measures the choice once more, after a trial of the recipe and one of `tried`.
  TuneResult again(const TuneRequest& request, const TuneResult& before, const std::vector<std::string>& tried = {}) {
    return with_runner(request, [&](TrialRunner& runner) {
      runner.run("as it is", {});
      runner.run("tried", changes_of(tried));
      TuneResult result = before;
      measure_again(runner, result);
      return result;
    });
  }

  void take_turns_only(size_t rounds) { rounds_ = rounds; }
  const std::vector<std::string>& first_arguments() const { return first_arguments_; }
  double now() const { return now_; }
  int turns() const { return turns_; }

 private:
  TuneResult with_runner(const TuneRequest& request, const std::function<TuneResult(TrialRunner&)>& way) {
    TrialRunner runner(request, {.run = [this](const auto& words, const ChildLimits&) { return run(words); },
                                 .compare = [this](const CompareRequest& both) { return compare(both); },
                                 .seconds = [this] { return now_; }});
    return way(runner);
  }

  Options options_of(const std::vector<std::string>& words) const {
    std::vector<std::string> overrides;
    std::copy_if(words.begin(), words.end(), std::back_inserter(overrides),
                 [](const std::string& word) { return word.find('=') != std::string::npos; });
    return load_config(recipe_, overrides).options;
  }

  ChildResult run(const std::vector<std::string>& arguments) {
    if (first_arguments_.empty()) first_arguments_ = arguments;
    now_ += kSecondsOfATrial;
    const Options options = options_of(arguments);
    const Measured found = measure_(options);
    if (found.end != ChildEnd::kDone) return {.end = found.end, .said = "no room", .seconds = kSecondsOfATrial};
    return {.output = profile_document(options, found), .said = {}, .seconds = kSecondsOfATrial};
  }

  Comparison compare(const CompareRequest& both) {
    now_ += kSecondsOfTurns;
    ++turns_;
    const double first = measure_(options_of(both.first)).step_ms, second = measure_(options_of(both.second)).step_ms;
    return {.first_ms = {first},
            .second_ms = {second},
            .ratios = std::vector<double>(rounds_, second / first),
            .ratio = second / first,
            .interval = {second / first, second / first}};
  }

  const std::string recipe_ = testing::TempDir() + concat("tuned_recipe_", getpid(), ".yaml");
  std::function<Measured(const Options&)> measure_;
  std::vector<std::string> first_arguments_;
  double now_ = 1000;
  int turns_ = 0;
  size_t rounds_ = 6;
};

inline std::vector<std::string> names_of(const TuneResult& result) {
  std::vector<std::string> names;
  for (const Trial& trial : result.trials) names.push_back(trial.name);
  return names;
}

}  // namespace vox
