// How good the network is on cases it does not learn from: fixed patches, or whole volumes by sliding window.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/options.h"
#include "pipeline/pipeline.h"
#include "report/slices.h"

namespace vox {

class Network;
class LossSet;

struct ValidationResult {
  std::vector<std::pair<std::string, double>> scores;  // loss, loss.<term>, dice, iou, ... (mae for regression)
  std::vector<SliceStrip> strips;                      // of the first patch or case; empty unless asked for

  double at(const std::string& metric) const;  // Error lists what there is
};

struct ValidationRequest {
  Network& network;  // with the weights to be judged
  const LossSet& loss;
  std::shared_ptr<Store> store;
  const Options& options;
  int64_t step = 0;  // decides which loss terms have started
  int data_threads = 1;
  bool images = false;
  std::function<void(int64_t done, int64_t total)> progress;
};
ValidationResult validate(const ValidationRequest& request);

// Error where validation.metric is no score of a validation with these loss terms.
void check_metric(const Options& options, const std::vector<std::string>& terms);

bool higher_is_better(const ValidationOptions& options);

}  // namespace vox
