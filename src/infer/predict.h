// Whole cases through a network: read and preprocessed as in training, predicted by windows, written as volumes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/volume.h"
#include "config/options.h"
#include "infer/sliding_window.h"
#include "volume/store.h"

namespace vox {

// Windows of one case, as training saw them; edge voxels are repeated outside the volume.
WindowSource case_source(const std::shared_ptr<Store>& store, int64_t case_index, const Extent3& window);

SlidingWindowOptions window_options(const Options& options);

enum class Output { kLabels, kProbabilities };

struct DecodeOptions {
  Output output = Output::kLabels;
  bool regression = false;            // values as they are
  double threshold = 0.5;             // of the foreground, for one channel
  std::vector<int64_t> class_values;  // label value of each class; empty: 0, 1, 2, ...
};
// Labels (uint8: background and foreground for one channel, the strongest channel for several) or float32
// probabilities, one channel of the volume per channel of the network.
Volume decode(const Logits& logits, const DecodeOptions& options);

struct PredictOptions {
  std::filesystem::path folder;  // gets <id>.tif
  SlidingWindowOptions window;
  DecodeOptions decode;
  std::vector<PostOptions> postprocess{};  // of a prediction of one class
  std::string orientation = "keep";        // data.orientation: the result goes back to the axes of the file
};
struct PredictProgress {
  std::function<void(const std::string& id, int64_t done, int64_t total)> window;
  std::function<void(const std::string& id, const std::filesystem::path& file)> written;
};
void predict_cases(Network& network, const std::shared_ptr<Store>& store, const std::vector<int64_t>& cases,
                   const PredictOptions& options, const PredictProgress& progress = {});

// The cases that the command line names: one per INPUT, `a.tif,b.tif` for channels; all in the test split.
Dataset dataset_of_inputs(const std::vector<std::string>& inputs);

}  // namespace vox
