#include "train/resume.h"

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace vox {
namespace {

std::string shown(const OptionDifference& difference) {
  return concat("  ", difference.key, ": ", difference.before, " -> ", difference.after);
}

std::vector<std::string> check_configuration(const Options& before, const Options& now, bool force) {
  std::vector<std::string> harmful, notes;
  for (const OptionDifference& difference : differences(before, now))
    (is_harmless(difference.key) ? notes : harmful).push_back(shown(difference));
  VOX_CHECK(harmful.empty() || force, "the configuration is not the one this run was trained with so far:\n",
            join(harmful, "\n"),
            "\nGo on with the old one, name another --run, or add --force to go on with the new one.");
  notes.insert(notes.end(), harmful.begin(), harmful.end());
  if (!notes.empty()) notes.front() = concat("changed since the checkpoint:\n", notes.front());
  return notes;
}

// The old checkpoints stay where `auto` does not look: starting anew must not cost what is there.
void set_aside(const RunFolder& run) {
  if (!fs::exists(run.checkpoints()) || fs::is_empty(run.checkpoints())) return;
  for (int number = 1;; ++number) {
    const fs::path aside = run.path() / concat("checkpoints-before-", number);
    if (fs::exists(aside)) continue;
    fs::rename(run.checkpoints(), aside);
    return;
  }
}

}  // namespace

bool is_harmless(const std::string& key) {
  if (key.starts_with("monitor.")) return true;
  if (key.starts_with("system.")) return key != "system.compute_threads";
  return key == "data.num_workers" || key == "data.prefetch_factor" || key == "data.cache_gb";
}

std::optional<ResumePoint> find_resume_point(const RunFolder& run, const ResumeRequest& request,
                                             const Options& options) {
  if (request.mode == ResumeMode::kNever) {
    set_aside(run);
    return std::nullopt;
  }
  std::optional<FoundCheckpoint> found;
  if (request.mode == ResumeMode::kFile)
    found = FoundCheckpoint{read_checkpoint_file(request.file), {}};
  else
    found = newest_intact(CheckpointFolder(run.checkpoints()));
  if (!found) return std::nullopt;
  ResumePoint point{std::move(found->file), {}, {}};
  const std::string path = point.file.path.string();
  point.state = state_of(point.file.metadata, path);
  for (const std::string& damaged : found->damaged)
    point.notes.push_back(concat(damaged, "; going on from ", point.file.path.filename().string(), " (step ",
                                 point.state.step, ") instead"));
  const std::vector<std::string> changes =
      check_configuration(options_of(point.file.metadata, path), options, request.force);
  point.notes.insert(point.notes.end(), changes.begin(), changes.end());
  return point;
}

}  // namespace vox
