// voxloom predict RUN|CHECKPOINT INPUT... --output DIR
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "train/predict_run.h"

namespace vox::cli {
namespace {

void define(CLI::App& command) {
  auto request = std::make_shared<PredictRequest>();
  command.add_option("model", request->model, "a run (its best checkpoint, else its last) or a checkpoint")->required();
  command.add_option("input", request->inputs, "volumes to predict; a.tif,b.tif for the channels of one case");
  command.add_option("--output", request->output, "folder that gets <id>.tif")->required();
  command.add_option("--split", request->split, "train, validation or test: those cases of the run's own data");
  command.add_option("--overlap", request->overlap, "of neighbouring windows, 0 to below 1");
  command.add_option("--threshold", request->threshold, "of the foreground's probability");
  command.add_flag("--tta", request->tta, "average over the eight mirrorings of each window");
  command.add_flag("--probabilities", request->probabilities, "float32 probabilities instead of labels");
  command.add_option("--device", request->device, "cpu, cuda or cuda:N; without it a GPU where there is one");
  command.callback([request] {
    request->say = [](const std::string& line) { std::cerr << line << '\n'; };
    predict_run(*request);
  });
}

}  // namespace

CommandEntry predict_command() {
  return {"predict", "Predict whole volumes with a trained network", define};
}

}  // namespace vox::cli
