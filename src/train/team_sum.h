// Sums over the GPUs of several processes, by NCCL.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <vector>

#include "train/place.h"

namespace vox {

class TeamSum {
 public:
  virtual ~TeamSum() = default;
  virtual void add_up(const std::vector<at::Tensor>& tensors) = 0;  // in place; the device's queue waits, not the host
  virtual void abort() = 0;  // from any thread: what waits for a process that has ended goes on
};

using TeamKey = std::array<char, 128>;
// Compiled with CUDA alone. The key of a new team: all zeros where there is no NCCL, and make_team_sum() is then null.
TeamKey new_team_key();
std::unique_ptr<TeamSum> make_team_sum(const TeamKey& key, Place place, const at::Device& device);  // all at once

}  // namespace vox
