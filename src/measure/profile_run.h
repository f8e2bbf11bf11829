// What the ways of measuring a run share.
#pragma once

#include <vector>

#include "measure/profile.h"
#include "measure/scratch_folder.h"
#include "train/trainer.h"

namespace vox {

TrainRequest measuring_request(const ProfileRequest& request, const ScratchFolder& folder);
// Loads what the store keeps whole, as the first epoch would; ends early after `seconds`.
void warm_store(Store& store, double seconds);
bool enough_steps(const std::vector<double>& step_ms, double seconds);  // for a median that stands
// A full queue empties and fills as one: a part of such a round has too many waits, or too few. A loss term that comes
// every few steps comes too often in a part of its own round, or not at all.
bool whole_rounds(const Options& options, int64_t steps);

}  // namespace vox
