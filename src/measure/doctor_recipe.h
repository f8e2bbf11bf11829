// A recipe on this machine: what will hurt and what will fail, before anything runs. Only headers of volumes are read.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "measure/doctor.h"
#include "measure/memory_estimate.h"

namespace vox {

struct DataFacts {
  std::string problem;      // why there are no cases to look at; else empty
  bool to_be_made = false;  // data.synth makes them at the first use
  int64_t train = 0, validation = 0, channels = 1;
  int64_t left_out = 0;  // damaged cases, where data.on_bad_case is skip; what the first of them has
  std::string why_left_out;
  int64_t stored_bytes = 0;    // all volumes after preprocessing, as the store keeps them
  int64_t passing_bytes = 0;   // most that making one takes beside it
  int64_t restored_bytes = 0;  // chunked copies, where they do not fit into data.cache_gb
  int64_t narrow_cases = 0;    // whose image the patch does not fit into; the first of them
  std::string narrow_case;
  Extent3 narrow;
  std::string network;  // "nfs4 server:/export" where data.root lies on one; else empty
};

struct NetworkFacts {
  std::string problem;  // why no network can be made, or the patch does not fit it
  int64_t checkpoint_bytes = 0;
  MemoryEstimate memory, memory_doubled;  // of a step, and with twice the batch
};

struct RecipeFacts {
  Config config;
  std::string name;                  // as the user wrote it, for the commands that prove
  std::vector<std::string> changes;  // key=value words beside it, likewise
  int cpus = 1;
  int64_t memory_bytes = 0;  // that this process may use
  std::string device;        // --device
  int gpus = 0;              // that training can use
  int64_t gpu_free_bytes = 0;
  int gpu_capability = 0;
  int64_t run_free_bytes = 0, cache_free_bytes = 0;
  std::string run_folder, cache_dir;
  DataFacts data;
  NetworkFacts network;
};
RecipeFacts recipe_facts(const Config& config, const std::string& name, const MachineView& machine);

struct RecipeCheck {
  std::string name;
  std::vector<Finding> (*look)(const RecipeFacts& recipe);
};
const std::vector<RecipeCheck>& recipe_checks();
std::vector<Finding> examine_recipe(const RecipeFacts& recipe);

}  // namespace vox
