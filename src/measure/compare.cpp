#include "measure/compare.h"

#include <algorithm>
#include <istream>
#include <ostream>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/overrides.h"
#include "measure/child.h"
#include "measure/profile_run.h"
#include "train/trainer.h"

namespace vox {
namespace {

constexpr double kAnswerSeconds = 300;
constexpr double kTurns = 30;  // that the time is shared out to
constexpr size_t kMostRounds = 20;

class TurnServer {
 public:
  TurnServer(const ProfileRequest& request, std::istream& in, std::ostream& out)
      : warm_cache_(request.warm_cache), ahead_(request.config.options.data.prefetch_factor + 3), in_(in), out_(out) {}

  ProbeAnswer after_step(const ProbedStep& step) {
    if (step.step == 1 && warm_cache_) warm_store(*step.store, kAnswerSeconds / 2);
    const auto now = Clock::now();
    if (to_drop_ > 0) {
      --to_drop_;
    } else if (to_time_ > 0) {
      step_ms_.push_back(1e3 * std::chrono::duration<double>(now - last_).count());
      --to_time_;
    }
    const bool done = to_drop_ == 0 && to_time_ == 0;
    const ProbeAnswer answer = done ? turn() : ProbeAnswer::kGoOn;
    last_ = Clock::now();
    return answer;
  }

 private:
  ProbeAnswer turn() {
    out_ << shortest(mean_of(step_ms_)) << std::endl;
    step_ms_.clear();
    int64_t steps = 0;
    if (!(in_ >> steps) || steps < 1) return ProbeAnswer::kEnd;
    to_drop_ = ahead_;  // batches that were made while the other had its turn
    to_time_ = steps;
    return ProbeAnswer::kGoOn;
  }

  bool warm_cache_;
  int64_t ahead_;
  std::istream& in_;
  std::ostream& out_;
  int64_t to_drop_ = 3, to_time_ = 4;
  std::vector<double> step_ms_;
  Clock::time_point last_ = Clock::now();
};

std::vector<std::string> turn_arguments(const std::vector<std::string>& recipe, const CompareRequest& request) {
  std::vector<std::string> arguments = device_words(request.device);
  arguments.insert(arguments.begin(), {"profile", "--turns"});
  if (request.warm_cache) arguments.push_back("--warm-cache");
  arguments.insert(arguments.end(), recipe.begin(), recipe.end());
  return arguments;
}

double answer_of(Child& child) {
  return std::stod(child.read_line(kAnswerSeconds));
}

int64_t steps_of_turn(double step_ms, double seconds) {
  return std::clamp<int64_t>(static_cast<int64_t>(1e3 * seconds / kTurns / std::max(step_ms, 1e-3)), 3, 200);
}

// More rounds narrow the interval until it lies on one side.
bool still_open(const std::vector<double>& ratios, const std::optional<double>& threshold) {
  if (!threshold) return false;
  const Interval interval = median_interval(ratios);
  return interval.low <= *threshold && *threshold <= interval.high;
}

double take_turn(Child& child, int64_t steps) {
  child.write_line(concat(steps));
  return answer_of(child);
}

}  // namespace

bool plainly_decided(const std::vector<double>& ratios, double threshold) {
  constexpr double kFar = 1.15;
  if (ratios.size() < 3) return false;
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return *low > kFar * threshold || *high * kFar < threshold;
}

bool says_which_data(const std::string& override_text) {
  static const std::set<std::string> kKeys{
      "data.root",       "data.images",       "data.label",      "data.mask",     "data.csv",
      "data.id_column",  "data.group_column", "data.cases",      "data.split",    "data.split_column",
      "data.split_seed", "data.train",        "data.validation", "data.test",     "data.folds",
      "data.cache_dir",  "training.fold",     "model.file",      "model.weights", "extends"};
  const std::string key = parse_override(override_text).first;
  return kKeys.contains(key) || key.starts_with("data.synth");
}

void serve_turns(const ProfileRequest& request, std::istream& in, std::ostream& out) {
  const ScratchFolder folder("profile");
  TurnServer server(request, in, out);
  TrainRequest train_request = measuring_request(request, folder);
  train_request.probe = StepProbe{.after_step = [&](const ProbedStep& step) { return server.after_step(step); }};
  train(train_request);
}

Comparison compare_recipes(const CompareRequest& request) {
  const SignalWatch signals;  // of both
  Child first(turn_arguments(request.first, request));
  const int64_t first_steps = steps_of_turn(answer_of(first), request.seconds);  // alone, for its first steps too
  Child second(turn_arguments(request.second, request));
  const int64_t second_steps = steps_of_turn(answer_of(second), request.seconds);
  Comparison result;
  const auto start = Clock::now();
  while (result.ratios.size() < kLeastForInterval ||
         (result.ratios.size() < kMostRounds &&
          (seconds_since(start) < request.seconds || still_open(result.ratios, request.threshold)))) {
    const bool swapped = result.ratios.size() % 2 == 1;  // neither always goes first
    if (swapped) result.second_ms.push_back(take_turn(second, second_steps));
    result.first_ms.push_back(take_turn(first, first_steps));
    if (!swapped) result.second_ms.push_back(take_turn(second, second_steps));
    result.ratios.push_back(result.second_ms.back() / result.first_ms.back());
    if (request.threshold && plainly_decided(result.ratios, *request.threshold)) break;
    if (result.ratios.size() >= 3 && seconds_since(start) > 4 * request.seconds) break;  // steps of many seconds
  }
  result.ratio = median_of(result.ratios);
  result.interval = median_interval(result.ratios);
  return result;
}

}  // namespace vox
