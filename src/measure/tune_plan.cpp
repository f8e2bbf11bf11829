// The guides' ladder, one setting at a time in their order; and the table of their trade-offs, each alone and together.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "measure/tune_trials.h"
#include "train/threads.h"

namespace vox {
namespace {

struct Rung {
  std::vector<std::string> words;
  std::string risk;
};

struct PlanSizes {
  int64_t batch_factor, workers, prefetch, accumulate_factor;
  bool half_precision;
};

PlanSizes sizes_of(const std::string& plan, const Options& options) {
  const int64_t cpus = std::min(available_cpus(), plan_threads(options, ComputeOn::kCpu).cpus);
  if (plan == "conservative") return {2, std::max<int64_t>(1, cpus / 2), 2, 1, false};
  if (plan == "balanced") return {2, std::max<int64_t>(1, cpus), 4, 2, true};
  return {4, 2 * cpus, 8, 4, true};
}

std::vector<Rung> rungs_of(const std::string& plan, const Options& options) {
  const PlanSizes sizes = sizes_of(plan, options);
  std::vector<Rung> rungs{
      {{concat("data.batch_size=", options.data.batch_size * sizes.batch_factor)},
       "other gradients: the learning rate may have to follow"},
      {{concat("data.num_workers=", sizes.workers)}, "none for the result; takes memory for patches under way"},
      {{concat("data.prefetch_factor=", sizes.prefetch)}, "none for the result; takes memory for batches ahead"}};
  if (sizes.half_precision)
    rungs.push_back({{"training.precision=bf16-mixed"}, "coarser rounding: compare the loss of a longer run"});
  if (sizes.accumulate_factor > 1)
    rungs.push_back({{concat("training.accumulate=", options.training.accumulate * sizes.accumulate_factor)},
                     "fewer steps for the same samples"});
  return rungs;
}

Trial& measured_start(TrialRunner& runner) {
  Trial& start = runner.run("as it is", {});
  if (!worked(start))
    throw Error(concat("the recipe as it is could not be measured (", name_of(start.verdict), "): ", start.note));
  start.verdict = TrialVerdict::kBaseline;
  start.note.clear();
  return start;
}

}  // namespace

TuneResult climb_plan(TrialRunner& runner) {
  runner.judged(measured_start(runner));
  TuneResult result;
  Changes best;
  size_t best_index = 0;
  std::map<std::string, std::string> evidence;
  for (const Rung& rung : rungs_of(runner.request().plan, runner.options())) {
    if (runner.seconds_left() < 0) {
      result.not_tried.push_back(join(rung.words, " "));
      continue;
    }
    const Changes changes = merged(best, rung.words);
    Trial& trial = runner.run(join(rung.words, " "), changes);
    const Trial& base = runner.trials()[best_index];
    if (worked(trial)) {
      runner.judge(trial, base);
      trial.note += concat(trial.note.empty() ? "" : "; ", "risk: ", rung.risk);
    }
    if (trial.verdict == TrialVerdict::kBetter) {
      for (const std::string& word : rung.words) evidence[word] = concat(speed_text(base, trial), "; ", trial.note);
      best = changes;
      best_index = runner.trials().size() - 1;
    }
    runner.judged(trial);
  }
  result.trials = runner.trials();
  result.batches = tried_batches(runner, best);
  result.chosen = words_of(best);
  for (const std::string& word : result.chosen) result.evidence.push_back(evidence[word]);
  return result;
}

namespace {

constexpr double kFaster = 1.02;  // samples a second: less is within what a machine varies

struct Ablation {
  std::string name;
  std::vector<std::string> words;
  bool joins = true;  // in the row of all together; a network cannot be two
};

std::string joined_numbers(const std::vector<int64_t>& values) {
  std::vector<std::string> words;
  for (const int64_t value : values) words.push_back(concat(value));
  return concat("[", join(words, ","), "]");
}

std::vector<std::string> flips_only(const Options& options) {
  Options changed = options;
  const bool flip = changed.augmentation.flip.enabled;
  changed.augmentation = AugmentationOptions{};
  changed.augmentation.enabled = true;
  changed.augmentation.flip = options.augmentation.flip;
  changed.augmentation.flip.enabled = flip || options.augmentation.enabled;
  return overrides_between(options, changed);
}

std::vector<Ablation> network_rows(const Options& options) {
  std::vector<int64_t> half = options.model.filters, fewer = options.model.filters;
  for (int64_t& filters : half) filters = std::max<int64_t>(1, filters / 2);
  std::vector<Ablation> rows;
  if (!half.empty()) rows.push_back({"half the filters", {"model.filters=" + joined_numbers(half)}, false});
  if (fewer.size() > 2) {
    fewer.pop_back();
    rows.push_back({"one level less", {"model.filters=" + joined_numbers(fewer)}, false});
  }
  rows.push_back({"BasicUNet", {"model.architecture=monai_basic_unet3d", "model.filters=[]"}, false});
  rows.push_back({"MedNeXt-S", {"model.architecture=mednext", "model.mednext_size=S", "model.filters=[]"}, false});
  if (options.model.deep_supervision) rows.push_back({"no deep supervision", {"model.deep_supervision=false"}});
  return rows;
}

std::vector<std::string> more_workers(const Options& options, ComputeOn where) {
  const int now = plan_threads(options, where).data;
  Options changed = options;
  changed.data.num_workers = int64_t{4} * now;
  if (plan_threads(changed, where).data == now) return {};  // system.num_cpus allows no more
  return {concat("data.num_workers=", changed.data.num_workers)};
}

std::vector<Ablation> ablations_of(const Options& options, ComputeOn where) {
  std::vector<std::string> patch;
  for (int axis = 0; axis < 3; ++axis)
    patch.push_back(concat(std::max<int64_t>(16, options.data.patch_size[axis] / 2 / 16 * 16)));
  std::vector<Ablation> rows{{"bf16", {"training.precision=bf16-mixed"}},
                             {"batch x2", {concat("data.batch_size=", options.data.batch_size * 2)}},
                             {"workers x4", more_workers(options, where)},
                             {"prefetch x4", {concat("data.prefetch_factor=", options.data.prefetch_factor * 4)}},
                             {"activation checkpoints", {"model.use_checkpoint=true"}},
                             {"smaller patches", {concat("data.patch_size=[", join(patch, ","), "]")}, false},
                             {"flips only", flips_only(options)},
                             {"rare logging", {concat("monitor.log_every=", options.monitor.log_every * 10)}},
                             {"no visualisation", {"monitor.images=false", "monitor.tensorboard=false"}}};
  for (Ablation& row : network_rows(options)) rows.push_back(std::move(row));
  std::erase_if(rows, [](const Ablation& row) { return row.words.empty(); });  // the recipe has it already
  return rows;
}

// The loss once as many samples were seen as the recipe sees in the steps whose losses are known; absent where the
// trial did not come so far.
std::optional<double> loss_after_equal_samples(const Trial& trial, const Trial& start) {
  const double batch = trial.samples_per_s * trial.step_ms, start_batch = start.samples_per_s * start.step_ms;
  if (start.losses.empty() || batch <= 0) return std::nullopt;
  const auto steps = std::lround(static_cast<double>(start.losses.size()) * start_batch / batch);
  if (steps < 1 || steps > static_cast<long>(trial.losses.size())) return std::nullopt;
  return trial.losses[static_cast<size_t>(steps) - 1];
}

void note_ablation(Trial& trial, const Trial& start, double by_chance) {
  if (!worked(trial)) return;
  trial.gain = trial.samples_per_s / start.samples_per_s;
  trial.verdict = *trial.gain > by_chance ? TrialVerdict::kFaster : TrialVerdict::kNotBetter;
  trial.equal_samples_loss = loss_after_equal_samples(trial, start);
  trial.note.clear();
}

// A change has to gain more than the recipe does by running once more.
double gain_by_chance(TrialRunner& runner) {
  Trial& again = runner.run("as it is, again", {});
  const Trial& start = runner.trials().front();
  note_ablation(again, start, kFaster);
  if (!worked(again)) return kFaster;
  again.verdict = TrialVerdict::kBaseline;
  runner.judged(again);
  return std::max({kFaster, *again.gain, 1 / *again.gain});
}

}  // namespace

TuneResult ablate_settings(TrialRunner& runner) {
  Trial& start = measured_start(runner);
  start.equal_samples_loss = loss_after_equal_samples(start, start);
  runner.judged(start);
  const double by_chance = gain_by_chance(runner);
  const ComputeOn where = runner.trials().front().gpu_memory_gb ? ComputeOn::kGpu : ComputeOn::kCpu;
  TuneResult result;
  Changes together;
  for (const Ablation& row : ablations_of(runner.options(), where)) {
    if (runner.seconds_left() < 0) {
      result.not_tried.push_back(row.name);
      continue;
    }
    Trial& trial = runner.run(row.name, changes_of(row.words));
    note_ablation(trial, runner.trials().front(), by_chance);
    if (worked(trial) && row.joins && *trial.gain > by_chance) together = merged(together, row.words);
    runner.judged(trial);
  }
  if (!together.empty() && runner.seconds_left() > 0) {
    Trial& trial = runner.run("all that were faster, together", together);
    note_ablation(trial, runner.trials().front(), by_chance);
    runner.judged(trial);
  }
  result.trials = runner.trials();
  return result;
}

}  // namespace vox
