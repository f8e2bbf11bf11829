// What `train` would refuse before its first step, found without a voxel being read.
#pragma once

#include <cstdint>
#include <string>

#include "config/options.h"

namespace vox::cli {

// Error where a name or an option is wrong whatever the data will be: architecture, steps of pre- and postprocessing,
// windows, sampler, transforms, terms and targets of the loss, schedule, metric, the file of the first weights.
void check_settings(const Options& options);

// Error where there are no cases, or the split names others. Lists files and opens none.
void check_cases(const Options& options);

struct HeaderFacts {
  int64_t image_channels = 0;  // model.in_channels where there is no data
  std::string why_unknown;     // why there is none
  int64_t training_bytes = 0;  // of the volumes to train on, as they are kept
};
// Error where the headers of the files contradict the recipe.
HeaderFacts check_headers(const Options& options);

}  // namespace vox::cli
