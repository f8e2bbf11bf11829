// Whether and from where a run goes on.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "report/run_folder.h"
#include "train/checkpoint_folder.h"
#include "train/state.h"

namespace vox {

enum class ResumeMode { kAuto, kNever, kFile };

struct ResumeRequest {
  ResumeMode mode = ResumeMode::kAuto;
  std::filesystem::path file;  // for kFile; the newest of a run
  bool force = false;          // go on though the configuration changed
};

struct ResumePoint {
  CheckpointFile file;
  TrainState state;
  std::vector<std::string> notes;  // damaged files that were passed over, changed options: to be said
  bool judged_otherwise = false;   // validations have another measure now: `state` has forgotten its best
};

// Absent: start from nothing. Error shows the differences where the configuration changed in a way that matters.
std::optional<ResumePoint> find_resume_point(const RunFolder& run, const ResumeRequest& request,
                                             const Options& options);

// As scores by another measure, or of other cases, say nothing of those to come.
void forget_scores(ResumePoint& point);

// For a run that starts anew, or goes on from a file of another: its checkpoints stay where `auto` does not look, and
// their curves with them. Returns where; empty: there were none.
std::string set_aside(const RunFolder& run);

// For a run that goes on at `state`, from a file that was named or with another measure. Checkpoints of its own that it
// goes back behind, and a `best` that is not the one of `state`, are kept where `auto` does not look: else the next
// start would take up what this one leaves. `best` then names the file of the best score; where none is left, `state`
// forgets the score. `file`, where `state` was read, is where that lies afterwards. Returns what to say.
std::vector<std::string> go_back_to(const RunFolder& run, TrainState& state, std::filesystem::path& file);

// For a run that simply goes on, where checkpoints that it wrote are gone. Without the best `state` forgets its score,
// as in go_back_to; without any the run starts anew, and its curves so far are kept. Returns what to say.
std::string make_good(const RunFolder& run, const RunRecord& former, TrainState& state);

// What to say where the machine or torch's threads are not those of the checkpoint; empty: they are.
std::string rounding_note(const TrainState& stored, const std::map<std::string, std::string>& now, int threads);

// Options that change nothing about the weights, or their rounding alone: the trainer says that.
bool is_harmless(const std::string& key);

}  // namespace vox
