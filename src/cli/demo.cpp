// voxloom demo: the embedded example from nothing to a score. Makes a synthetic scroll, trains a small U-Net, predicts
// and evaluates a volume it has not seen, and says where the report is.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/commit.h"
#include "cli/demo_recipe.h"
#include "cli/make_data.h"
#include "io/format.h"
#include "metrics/metric.h"
#include "report/run_folder.h"
#include "train/predict_run.h"
#include "train/trainer.h"

namespace vox::cli {
namespace {

struct Arguments {
  std::string run, device;
};

// The data lies beside the runs, so that a second demo finds it.
Config demo_config(const fs::path& runs) {
  Config config = parse_config(kDemoRecipe, fs::current_path(), {"data.root=" + (runs / "demo-data").string()});
  config.file = "demo.yaml";  // names the run
  return config;
}

double held_out_dice(const std::vector<PredictedCase>& cases, int64_t ignore_label) {
  ThreadPool pool(available_cpus());
  const MetricEntry& metric = find_metric("segmentation");
  std::vector<Scores> scores;
  for (const PredictedCase& one : cases) {
    const Volume prediction = read_volume(one.file.string(), &pool), reference = read_volume(one.label, &pool);
    scores.push_back(metric.evaluate(source_of(prediction, one.file.string()), source_of(reference, one.label),
                                     {.ignore_label = ignore_label}, pool));
    std::cout << "check it: voxloom evaluate --task segmentation --ignore-label " << ignore_label << " --prediction "
              << one.file.string() << " --reference " << one.label << '\n';
  }
  return metric.mean(scores).values.at("dice");
}

void run(const Arguments& arguments) {
  const fs::path runs = arguments.run.empty() ? fs::absolute("runs") : fs::absolute(arguments.run).parent_path();
  TrainRequest request;
  request.config = demo_config(runs);
  request.run = arguments.run;
  request.device = arguments.device;
  request.command = "voxloom demo";
  request.commit = VOX_COMMIT;
  make_missing_data(request.config.options);
  const TrainOutcome outcome = train(request);
  std::cout << outcome.sentence << '\n';
  if (outcome.exit_status != 0) throw CLI::RuntimeError(outcome.exit_status);
  const std::vector<PredictedCase> cases =
      predict_run({.model = outcome.run,
                   .inputs = {},
                   .split = "test",
                   .output = outcome.run / "predictions",
                   .overlap = {},
                   .threshold = {},
                   .device = arguments.device,
                   .say = [](const std::string& line) { std::cerr << line << '\n'; },
                   .window = {}});
  const double dice = held_out_dice(cases, request.config.options.data.ignore_label);
  std::cout << "report: " << fs::absolute(outcome.run / "report.html").string() << '\n'
            << "held-out Dice " << format_number(dice, 3) << '\n';
}

void define(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("--run", arguments->run, "the run's folder; without it a new runs/demo-NNN");
  command.add_option("--device", arguments->device, "cpu, cuda or cuda:N; without it a GPU where there is one");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace

CommandEntry demo_command() {
  return {"demo", "The embedded example: make data, train, evaluate, write the report", define};
}

}  // namespace vox::cli
