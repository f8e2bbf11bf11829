// Settings that this run accepts and that do nothing, or nothing good, in it: a sentence each, to be said before it
// begins.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/options.h"

namespace vox {

struct PlannedRun {
  int64_t total_steps = 0;
  int64_t validation_cases = 0;
  bool on_cpu = true;
  std::vector<int64_t> label_values;  // found in the labels, the ignored one among them
  struct CaseLabels {
    std::string id;
    std::vector<std::pair<int64_t, int64_t>> counts;  // value, voxels
  };
  std::vector<CaseLabels> labels{};
};
std::vector<std::string> without_effect(const Options& options, const PlannedRun& facts);

}  // namespace vox
