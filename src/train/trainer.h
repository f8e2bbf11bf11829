// Trains a recipe to its end, or until someone asks it to stop; never loses more than the step under way.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "config/config.h"
#include "train/probe.h"
#include "train/resume.h"

namespace vox {

struct TrainRequest {
  Config config;
  std::filesystem::path run;  // empty: a new folder runs/<config>-NNN here
  ResumeRequest resume;
  std::string device;         // empty: chosen
  std::string command;        // as typed, for run.json
  std::string commit;         // of the program
  std::string export_folder;  // every batch and the first weights go there too; empty: no
  std::optional<StepProbe> probe;
};

struct TrainOutcome {
  int exit_status = 0;
  std::filesystem::path run;
  std::string sentence;  // how it ended, and how to go on
};
TrainOutcome train(const TrainRequest& request);

// `steps` real steps at the real patch size in a folder that is removed again; fewer where a signal ends it.
struct RehearsalReport {
  int stop_signal = 0;
  int64_t steps = 0, steps_per_epoch = 0, epochs = 0;
  double step_s = 0, data_wait_s = 0;  // medians
  double first_step_s = 0;
};
RehearsalReport rehearse(const TrainRequest& request, int64_t steps);

}  // namespace vox
