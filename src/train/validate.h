// How good the network is on cases it does not learn from: fixed patches, or whole volumes by sliding window.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  // loss, loss.<term>, dice, iou, ... (mae for regression); the latter of the channels that the first term which is
  // compared with the label sees, absent where none is.
  std::vector<std::pair<std::string, double>> scores;
  std::vector<SliceStrip> strips;  // of the first patch or case; empty unless asked for

  // Absent where it or an output of the network is not finite, or no voxel counted.
  std::optional<double> at(const std::string& metric) const;
};

struct ValidationRequest {
  Network& network;     // with the weights to be judged
  const LossSet& loss;  // of loss_of_validation
  std::shared_ptr<Store> store;
  const Options& options;
  int data_threads = 1;
  int64_t micro_batch = 0;  // samples that fit at once in training; 0: any number
  bool images = false;
  std::function<void(int64_t done, int64_t total)> progress;
  std::function<void()> between;  // after each batch of patches or windows; what it throws ends the validation
};
ValidationResult validate(const ValidationRequest& request);

// Each term, whatever its `every`, also before it starts: which step a validation follows must not change what it
// measures, or nothing that comes after the start of a term would be the best.
LossOptions loss_of_validation(LossOptions loss);

// Error where validation.metric is no score of a validation with these loss terms.
void check_metric(const Options& options, const std::vector<std::string>& terms);

// What to say where ValidationResult::at is absent.
std::string without_score(const std::string& metric, int64_t step);

bool higher_is_better(const ValidationOptions& options);

}  // namespace vox
