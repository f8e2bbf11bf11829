// data.placement: where volumes lie while a GPU trains, the fastest tier that fits.
#pragma once

#include <cstdint>
#include <string>

#include "pipeline/pipeline.h"

namespace vox {

struct PlacementFacts {
  bool on_gpu = false;       // the network trains there, and this program has kernels for it
  std::string why_on_host;   // pipeline/device_sample.h
  bool in_memory = false;    // all volumes fit into data.cache_gb
  int64_t volume_bytes = 0;  // of the training cases
  int64_t free_bytes = 0;    // on the GPU, once a step has taken what it needs
  int64_t kept_bytes = 0;    // of them, left to a step that is captured, and to others
};

struct Placement {
  GatherOn gather_on = GatherOn::kHost;
  std::string tier;  // gpu, host or disk
  std::string said;  // which and why, for the log; empty: nothing worth saying
};

// Error where `wanted` is gpu and the volumes do not fit.
Placement decide_placement(const std::string& wanted, const PlacementFacts& facts);

}  // namespace vox
