// One trial: a child process that profiles the recipe with changes, and what became of it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "measure/child.h"
#include "measure/tune.h"

namespace vox {

using Changes = std::map<std::string, std::string>;  // key, value
std::vector<std::string> words_of(const Changes& changes);
Changes changes_of(const std::vector<std::string>& words);
Changes merged(Changes changes, const std::vector<std::string>& words);  // the later one holds

double seconds_of_the_clock();  // since some beginning

struct TrialTools {  // a test gives its own machine and clock
  std::function<ChildResult(const std::vector<std::string>& arguments, const ChildLimits&)> run = run_child;
  std::function<Comparison(const CompareRequest&)> compare = compare_recipes;
  std::function<double()> seconds = seconds_of_the_clock;
};

class TrialRunner {
 public:
  explicit TrialRunner(const TuneRequest& request, TrialTools tools = {});

  // Runs and files it; the verdict of one that worked is left to the caller.
  Trial& run(const std::string& name, const Changes& changes, const std::optional<double>& predicted_step_ms = {});
  void judged(const Trial& trial) const;  // tells whoever watches
  // Judges one that worked by what it gains over `base`. One that seems faster is measured again in turns with `base`,
  // and is only better where 95 % of what the machine varies leave it faster; fewer turns than that takes, because
  // steps are long, have to be plain.
  void judge(Trial& trial, const Trial& base) const;

  double seconds_left() const;
  bool over_memory_target(const Trial& trial) const;
  const Options& options() const { return config_.options; }
  Config config_with(const Changes& changes) const;
  Comparison compare(const CompareRequest& request) const { return tools_.compare(request); }
  std::vector<Trial>& trials() { return trials_; }
  const TuneRequest& request() const { return request_; }

 private:
  void read_result(const std::string& document, Trial& trial) const;
  std::vector<std::string> recipe_with(const Trial& trial) const;

  const TuneRequest& request_;
  TrialTools tools_;
  Config config_;
  double begin_;
  int64_t memory_bytes_ = 0;
  std::vector<Trial> trials_;
};

bool worked(const Trial& trial);
// Of the steps both have; absent where one has none.
std::optional<double> loss_difference(const Trial& first, const Trial& second);

// "12.00 -> 15.00 samples/s"; in voxels where the patch is another.
std::string speed_text(const Trial& before, const Trial& after);

std::optional<TriedBatches> tried_batches(TrialRunner& runner, const Changes& chosen);

// Of what was chosen, against the recipe as it is.
void measure_again(TrialRunner& runner, TuneResult& result);

TuneResult search_settings(TrialRunner& runner);
TuneResult climb_plan(TrialRunner& runner);
TuneResult ablate_settings(TrialRunner& runner);

}  // namespace vox
