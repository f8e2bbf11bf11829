// Prediction with the network of a run: its weights, its preprocessing, its labels.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace vox {

struct Options;

struct PredictRequest {
  std::filesystem::path model;      // a run (its best checkpoint, else its last) or a checkpoint; several with commas
  std::vector<std::string> inputs;  // one case each
  std::string split;                // or a split of the run's own data: train, validation, test
  std::filesystem::path output;     // gets <id>.<inference.format>
  std::optional<double> overlap, threshold;  // absent: as the recipe says
  bool probabilities = false, tta = false;
  std::string device;
  std::function<void(const std::string& line)> say;
  std::function<void(const std::string& id, int64_t done, int64_t total)> window;
  std::vector<std::filesystem::path> also{};  // more runs or checkpoints: their outputs are averaged
  std::vector<std::string> overrides{};       // key=value of sections inference, data and system
  const Options* recipe = nullptr;            // said where it infers otherwise than the run, whose own settings count
};

struct PredictedCase {
  std::string id, label;  // label: its reference, empty where there is none
  std::filesystem::path file;
};
std::vector<PredictedCase> predict_run(const PredictRequest& request);

// Error where predictions of what such a recipe trains are nothing for its inference.postprocess.
void require_fitting_postprocess(const Options& options);

// Of a run or a checkpoint: the file to use. Damaged ones are named through `say`.
std::filesystem::path checkpoint_of(const std::filesystem::path& model);

}  // namespace vox
