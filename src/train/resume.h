// Whether and from where a run goes on.
#pragma once

#include <filesystem>
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
};

// Absent: start from nothing. Error shows the differences where the configuration changed in a way that matters.
std::optional<ResumePoint> find_resume_point(const RunFolder& run, const ResumeRequest& request,
                                             const Options& options);

// Options that change nothing about the weights, or their rounding alone: the trainer says that.
bool is_harmless(const std::string& key);

}  // namespace vox
