// A process of a training on several GPUs that follows the one that leads (train/team.h).
#pragma once

#include <filesystem>
#include <string>

#include "config/config.h"
#include "train/team.h"

namespace vox {

enum class GpuFor { kEachProcess, kAllProcesses };
// Starts them: this program once more, with the run's own configuration, printing to the run's worker-N.log.
Team::Starter follower_starter(const std::filesystem::path& run, const at::Device& device, GpuFor gpu);

struct FollowRequest {
  Config config;
  std::string place;   // "TABLE:INDEX:LEADER", as the starter gives it
  std::string device;  // as of `train`
};
void follow(const FollowRequest& request);  // until the run is over

}  // namespace vox
