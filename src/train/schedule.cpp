#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

// torch's OneCycleLR.
constexpr double kOneCycleStart = 25, kOneCycleEnd = 1e4;
// warmup_cosine without training.warmup_steps warms up over this share of the run.
constexpr double kDefaultWarmup = 0.05;

double cosine_between(double from, double to, double progress) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

double one_cycle(int64_t step, int64_t total, double peak_lr, double peak_at) {
  const double first_end = peak_at * static_cast<double>(total) - 1, last = static_cast<double>(total - 1);
  const double start = peak_lr / kOneCycleStart, end = start / kOneCycleEnd, now = static_cast<double>(step);
  if (now <= first_end) return cosine_between(start, peak_lr, first_end > 0 ? now / first_end : 1);
  return cosine_between(peak_lr, end, last > first_end ? (now - first_end) / (last - first_end) : 1);
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"poly",      "cosine",  "warmup_cosine", "step",
                                              "multistep", "plateau", "one_cycle",     "constant"};
  return names;
}

Schedule::Schedule(const TrainingOptions& options, const ScheduleLength& length) : options_(options), length_(length) {
  const std::vector<std::string>& names = schedule_names();
  if (std::find(names.begin(), names.end(), options.schedule) == names.end()) {
    const std::string meant = nearest(options.schedule, names);
    throw Error(concat("training.schedule: no schedule is called \"", options.schedule, "\"; there is ",
                       join(names, ", "), meant.empty() ? "" : concat(". Did you mean ", meant, "?")));
  }
  VOX_ASSERT(length.total_steps > 0 && length.steps_per_epoch > 0);
  VOX_CHECK(options.warmup_start > 0 && options.warmup_start <= 1, "training.warmup_start is ", options.warmup_start,
            "; expected above 0 and at most 1, as a warm-up from zero wastes its first steps");
  VOX_CHECK(options.min_lr <= options.lr, "training.min_lr is ", options.min_lr, ", above training.lr, which is ",
            options.lr, "; it is the lowest rate, so make it smaller");
  VOX_CHECK(options.step_size > 0, "training.step_size is ", options.step_size, "; expected 1 epoch or more");
  if (options.schedule == "warmup_cosine" && options.warmup_steps == 0) {
    options_.warmup_steps =
        std::max<int64_t>(1, std::llround(kDefaultWarmup * static_cast<double>(length.total_steps)));
  }
  if (options.schedule == "one_cycle") options_.warmup_steps = 0;  // it has a warm-up of its own
}

double Schedule::lr(int64_t step) const {
  const double base = options_.lr;
  const int64_t warmup = options_.warmup_steps;
  if (step < warmup) {
    const double progress = static_cast<double>(step) / static_cast<double>(warmup);
    return base * (options_.warmup_start + (1 - options_.warmup_start) * progress);
  }
  const double lowest = options_.min_lr, rate = std::max(lowest, after_warmup(step));
  const int64_t left = std::max<int64_t>(0, length_.total_steps - step), cooldown = options_.cooldown_steps;
  if (left >= cooldown) return rate;
  return lowest + (rate - lowest) * static_cast<double>(left) / static_cast<double>(cooldown);
}

double Schedule::after_warmup(int64_t step) const {
  const double base = options_.lr, lowest = options_.min_lr;
  const int64_t length = std::max<int64_t>(1, length_.total_steps - options_.warmup_steps);
  const int64_t here = std::min(step - options_.warmup_steps, length);
  const double progress = static_cast<double>(here) / static_cast<double>(length);
  const int64_t epoch = step / length_.steps_per_epoch;
  const std::string& name = options_.schedule;
  if (name == "poly") return lowest + (base - lowest) * std::pow(1 - progress, options_.poly_power);
  if (name == "cosine" || name == "warmup_cosine") return cosine_between(base, lowest, progress);
  if (name == "step") return base * std::pow(options_.gamma, static_cast<double>(epoch / options_.step_size));
  if (name == "multistep") {
    const auto passed = std::count_if(options_.milestones.begin(), options_.milestones.end(),
                                      [&](int64_t milestone) { return milestone <= epoch; });
    return base * std::pow(options_.gamma, static_cast<double>(passed));
  }
  if (name == "plateau") return base * std::pow(options_.gamma, static_cast<double>(state_.reductions));
  if (name == "one_cycle") {
    return one_cycle(std::min(step, length_.total_steps - 1), length_.total_steps, base, options_.one_cycle_peak);
  }
  return base;
}

void Schedule::report(double score, bool higher_is_better) {
  const bool better = !state_.has_best || (higher_is_better ? score > state_.best : score < state_.best);
  if (better) {
    state_.best = score;
    state_.has_best = true;
    state_.bad_validations = 0;
  } else if (++state_.bad_validations > options_.plateau_patience) {
    ++state_.reductions;
    state_.bad_validations = 0;
  }
}

}  // namespace vox
