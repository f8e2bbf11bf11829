// Whole cases through one network or several: read and preprocessed as in training, predicted by windows, written as
// volumes. An interrupted command goes on where it stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/options.h"
#include "infer/case_source.h"
#include "infer/output.h"
#include "infer/sliding_window.h"
#include "infer/submission.h"
#include "volume/dataset.h"

namespace vox {

class ThreadPool;

SlidingWindowOptions window_options(const Options& options);  // Error where inference.shift is over half a window
// Error where a loss term's target tells directions: outputs of mirrored input have them the other way round.
void require_mirrorable(const LossOptions& loss);

struct PredictOptions {
  std::filesystem::path folder;  // gets <id>.<format>
  SlidingWindowOptions window;
  OutputOptions output;
  MaskOptions mask{};
  std::optional<float> skip_below{};
  int64_t memory_bytes = int64_t{4} << 30;  // for input, windows and sums
  int64_t input_channels = 1, output_channels = 1;
  Submission submission = Submission::kNone;
  bool leaves_out_bad_cases = false;  // whose files cannot be opened; else they are errors
  std::string fingerprint{};          // of the weights and of all settings that change the result
};
struct PredictProgress {
  std::function<void(const std::string& line)> say{};
  std::function<void(const std::string& id, int64_t done, int64_t total)> window{};
  std::function<void(const std::string& id, const std::filesystem::path& file)> written{};
};
std::filesystem::path prediction_file(const PredictOptions& options, const std::string& case_id);
// Error where the prediction of a case would replace a file that it is made from, or will be judged by.
void require_other_file(const PredictOptions& options, const Case& item);

// Every case of `dataset`, one after the other. Error where memory_bytes cannot hold what a case needs; it names the
// least that can.
void predict_cases(const std::vector<Network*>& networks, const Dataset& dataset, const DataOptions& data,
                   ThreadPool& pool, const PredictOptions& options, const PredictProgress& progress = {});

// The cases that the command line names: one per INPUT, `a.tif,b.tif` for channels; all in the test split. Where the
// recipe takes further images or the mask from the first image's file (`{id}`, `{id}:PTV70`), so is it done here; and
// where its images are called `{id}_0000.nii.gz`, `{id}_0001.nii.gz`, the first names the case and the others lie
// beside.
Dataset dataset_of_inputs(const std::vector<std::string>& inputs, const DataOptions& data);

}  // namespace vox
