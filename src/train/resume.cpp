#include "train/resume.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "train/team.h"

namespace vox {
namespace {

std::string shown(const OptionDifference& difference) {
  return concat(difference.key, ": ", difference.before, " -> ", difference.after);
}

// What changed, in one line; empty: nothing.
std::string check_configuration(const Options& before, const Options& now, const ResumeRequest& request,
                                const std::string& path) {
  std::vector<std::string> harmful, notes;
  const bool same_team = team_size(before.system) == team_size(now.system);  // else steps have other samples
  for (const OptionDifference& difference : differences(before, now)) {
    const bool harmless = is_harmless(difference.key) && (same_team || difference.key != "system.num_gpus");
    (harmless ? notes : harmful).push_back(shown(difference));
  }
  const std::string otherwise = request.mode == ResumeMode::kFile
                                    ? concat("begin another --run with model.weights=", path, " instead of --resume")
                                    : "name another --run";
  VOX_CHECK(harmful.empty() || request.force, "the configuration is not the one this run was trained with so far:\n  ",
            join(harmful, "\n  "), "\nGo on with the old one, ", otherwise,
            ", or add --force to go on with the new one.");
  notes.insert(notes.end(), harmful.begin(), harmful.end());
  return notes.empty() ? "" : concat("changed since the checkpoint: ", join(notes, "; "));
}

fs::path next_aside(const RunFolder& run) {
  for (int number = 1;; ++number) {
    const fs::path aside = run.path() / concat("checkpoints-before-", number);
    if (!fs::exists(aside)) return aside;
  }
}

void keep_curves(const RunFolder& run, const fs::path& aside) {
  std::error_code none;  // a run that was stopped early has no curves
  fs::copy_file(run.metrics(), aside / run.metrics().filename(), none);
}

// What cannot be read would be in the way of new ones.
void move_curves(const RunFolder& run, const fs::path& aside) {
  std::error_code none;
  fs::rename(run.metrics(), aside / run.metrics().filename(), none);
}

std::optional<FoundCheckpoint> newest_of(const fs::path& run) {
  std::optional<FoundCheckpoint> found = newest_intact(CheckpointFolder(RunFolder::open(run).checkpoints()));
  VOX_CHECK(found, "the run ", run.string(), " has no checkpoint yet");
  return found;
}

// By another measure, or of other voxels.
bool judges_otherwise(const Options& before, const Options& now) {
  constexpr std::array kJudges{"validation.metric",  "validation.better",    "validation.mode",
                               "validation.patches", "inference.threshold",  "data.validation",
                               "data.split",         "data.split_seed",      "data.ignore_label",
                               "data.label",         "data.labels",          "data.mask",
                               "data.patch_size",    "data.sampler",         "data.foreground_fraction",
                               "training.fold",      "data.minimum_labelled"};
  constexpr std::array kJudgesOfVolumes{"inference.window", "inference.overlap", "inference.shift", "inference.blend",
                                        "inference.tta"};
  const auto one_of = [](const auto& keys, const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  const bool by_loss = now.validation.metric == "loss" || now.validation.metric.starts_with("loss.");
  const bool of_volumes = now.validation.mode == "sliding_window";
  const std::vector<OptionDifference> changed = differences(before, now);
  return std::any_of(changed.begin(), changed.end(), [&](const OptionDifference& difference) {
    return one_of(kJudges, difference.key) || (by_loss && difference.key.starts_with("loss.")) ||
           (of_volumes && one_of(kJudgesOfVolumes, difference.key));
  });
}

// Scores by one measure say nothing of those by another, nor does what a schedule remembers of what another one does.
void forget_what_changed(const Options& before, const Options& now, ResumePoint& point) {
  if (judges_otherwise(before, now)) return forget_scores(point);
  if (before.training.schedule != now.training.schedule) point.state.schedule = {};
}

// A run may hold files of another history, with the same steps.
bool is_best_of(const TrainState& state, const fs::path& file) {
  try {
    const TrainState stored = state_of(read_checkpoint_metadata(file), file.string());
    return state.best_score && stored.step == state.best_step && stored.best_score == state.best_score;
  } catch (const Error&) {
    return false;
  }
}

bool move_other_best(const CheckpointFolder& folder, const TrainState& state, const fs::path& aside) {
  const fs::path best = folder.best();
  if (!fs::exists(best) || is_best_of(state, best)) return false;
  make_folders(aside);
  fs::rename(best, aside / best.filename());
  return true;
}

// False: there is no such file.
bool name_best(const CheckpointFolder& folder, const TrainState& state) {
  for (const fs::path& file : folder.newest_first()) {
    if (!is_best_of(state, file)) continue;
    folder.mend_best(file);
    return true;
  }
  return false;
}

// `best` then names the file of the best score. Where there is none, what to say.
std::string find_best(const CheckpointFolder& folder, TrainState& state) {
  if (!state.best_score || name_best(folder, state)) return "";
  const int64_t step = std::exchange(state.best_step, 0);
  state.best_score.reset();
  return concat("this run has no checkpoint of the best score so far, which was at step ", step,
                "; its next validation counts as the best");
}

}  // namespace

void forget_scores(ResumePoint& point) {
  TrainState& state = point.state;
  if (state.best_score) point.notes.push_back("scores are not those of before: the next validation counts as the best");
  point.judged_otherwise = true;
  state.schedule = {};
  state.best_score.reset();
  state.best_step = 0;
  state.validations_without_gain = 0;
}

std::string set_aside(const RunFolder& run) {
  const bool checkpoints = fs::exists(run.checkpoints()) && !fs::is_empty(run.checkpoints());
  if (!checkpoints && !fs::exists(run.metrics())) return "";
  const fs::path aside = next_aside(run);
  if (checkpoints)
    fs::rename(run.checkpoints(), aside);
  else
    make_folders(aside);
  move_curves(run, aside);
  return concat("the run's ",
                checkpoints ? "checkpoints, which are of another history, and its curves so far," : "curves so far",
                " are now in ", aside.string());
}

bool is_harmless(const std::string& key) {
  if (key.starts_with("monitor.") || key.starts_with("system.")) return true;
  constexpr std::array kHarmless{"data.num_workers",   "data.prefetch_factor", "data.cache_gb",  "data.cache_dir",
                                 "data.cache_days",    "data.stage_dir",       "data.placement", "training.save_every",
                                 "training.keep_last", "model.weights"};
  return std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end();
}

std::optional<ResumePoint> find_resume_point(const RunFolder& run, const ResumeRequest& request,
                                             const Options& options) {
  if (request.mode == ResumeMode::kNever) return std::nullopt;
  std::optional<FoundCheckpoint> found;
  // A link would hide in which run the file lies.
  const fs::path file = fs::is_symlink(request.file) ? fs::canonical(request.file) : request.file;
  if (request.mode == ResumeMode::kFile)
    found = fs::is_directory(file) ? newest_of(file) : FoundCheckpoint{read_checkpoint_file(file), {}};
  else
    found = newest_intact(CheckpointFolder(run.checkpoints()));
  if (!found) return std::nullopt;
  ResumePoint point{.file = std::move(found->file), .state = {}, .notes = {}};
  const std::string path = point.file.path.string();
  point.state = state_of(point.file.metadata, path);
  for (const std::string& damaged : found->damaged)
    point.notes.push_back(concat(damaged, "; going on from ", point.file.path.filename().string(), " (step ",
                                 point.state.step, ") instead"));
  const Options before = options_of(point.file.metadata, path);
  const std::string changes = check_configuration(before, options, request, path);
  if (!changes.empty()) point.notes.push_back(changes);
  if (before.data.batch_size != options.data.batch_size) point.state.micro_batch = 0;  // it was a part of the other
  if (before.training.iterations_per_epoch != options.training.iterations_per_epoch) point.state.steps_per_epoch = 0;
  forget_what_changed(before, options, point);
  if (request.mode == ResumeMode::kAuto && point.state.best_score && point.state.best_step == point.state.step)
    CheckpointFolder(run.checkpoints()).mend_best(point.file.path);
  return point;
}

std::string rounding_note(const TrainState& stored, const std::map<std::string, std::string>& now, int threads) {
  std::vector<std::string> changed;
  for (const auto& [key, value] : now) {
    const auto before = stored.machine.find(key);
    if (before != stored.machine.end() && before->second != value)
      changed.push_back(concat(key, " was ", before->second, " and is ", value));
  }
  if (stored.compute_threads != threads)
    changed.push_back(concat("compute threads were ", stored.compute_threads, " and are ", threads));
  if (changed.empty()) return {};
  return concat("from here on this run equals one never stopped within rounding, not to the last bit: ",
                join(changed, "; "));
}

std::vector<std::string> go_back_to(const RunFolder& run, TrainState& state, fs::path& file) {
  std::vector<std::string> said;
  const CheckpointFolder folder(run.checkpoints());
  const fs::path aside = next_aside(run);
  const bool later = folder.move_later(state.step, aside);
  if (move_other_best(folder, state, aside) || later) {
    keep_curves(run, aside);
    said.push_back(concat("the run's ", later ? "checkpoints of later steps" : "best checkpoint",
                          ", and its curves so far, are now in ", aside.string()));
  }
  if (!fs::exists(file)) file = aside / file.filename();
  if (const std::string lost = find_best(folder, state); !lost.empty()) said.push_back(lost);
  return said;
}

std::string make_good(const RunFolder& run, const RunRecord& former, TrainState& state) {
  const CheckpointFolder folder(run.checkpoints());
  if (!folder.newest_first().empty()) return fs::exists(folder.best()) ? "" : find_best(folder, state);
  if (former.last_checkpoint.empty()) return "";
  const fs::path aside = next_aside(run);
  make_folders(aside);
  keep_curves(run, aside);
  return concat("the run's checkpoints are gone, of which the last was ", former.last_checkpoint,
                ": it starts anew; its curves so far are now in ", aside.string());
}

}  // namespace vox
