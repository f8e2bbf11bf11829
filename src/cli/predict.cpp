// voxloom predict RUN|CHECKPOINT INPUT... --output DIR
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "base/span.h"
#include "cli/command.h"
#include "train/predict_run.h"
#include "volume/glob.h"

namespace vox::cli {
namespace {

// Also in folders called "lr=0.1": with a dataset of a file, or with the channels of a case.
bool names_a_volume(const std::string& word) {
  return volume_exists(word) || volume_exists(word.substr(0, word.find(',')));
}

void sort_words(PredictRequest& request) {
  const auto is_override = [](const std::string& word) {
    return word.find('=') != std::string::npos && !names_a_volume(word);
  };
  std::vector<std::string>& inputs = request.inputs;
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(request.overrides), is_override);
  std::erase_if(inputs, is_override);
}

void define(CLI::App& command) {
  auto request = std::make_shared<PredictRequest>();
  command
      .add_option("model", request->model,
                  "a run (its best checkpoint, else its last) or a checkpoint; a,b averages several")
      ->required();
  command.add_option("input", request->inputs,
                     "volumes to predict; a.tif,b.tif for the channels of one case; key=value changes an option");
  command.add_option("--output", request->output, "folder that gets <id>.tif, or as inference.format says")->required();
  command.add_option("--also", request->also, "another run or checkpoint to average with; may be repeated")
      ->allow_extra_args(false);  // one a time: volumes may follow
  command.add_option("--split", request->split, "train, validation or test: those cases of the run's own data");
  command.add_option("--overlap", request->overlap, "of neighbouring windows, 0 to below 1");
  command.add_option("--threshold", request->threshold, "of the foreground's probability");
  command.add_flag("--tta", request->tta, "average over the mirrorings of each window that training drew");
  command.add_flag("--probabilities", request->probabilities, "float32 probabilities instead of labels");
  command.add_option("--device", request->device, "cpu, cuda or cuda:N; without it a GPU where there is one");
  command.callback([request] {
    sort_words(*request);
    request->say = [](const std::string& line) { std::cerr << line << '\n'; };
    request->window = [said = Clock::now()](const std::string& id, int64_t done, int64_t total) mutable {
      constexpr double kSecondsBetweenLines = 10;
      if (seconds_since(said) < kSecondsBetweenLines) return;
      said = Clock::now();
      std::cerr << "case " << id << ": " << done << " of " << total << " windows\n";
    };
    predict_run(*request);
  });
}

}  // namespace

CommandEntry predict_command() {
  return {"predict", "Predict whole volumes with a trained network", define};
}

}  // namespace vox::cli
