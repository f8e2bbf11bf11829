// voxloom bench step [CONFIG] [key=value ...]: a training step without its data path.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "config/config.h"
#include "measure/step_timing.h"

namespace vox::cli {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  StepBenchRequest request;
  bool as_json = false, turns = false;
};

void add_facts(const StepBenchFacts& facts, nlohmann::json& row) {
  for (const auto& [name, milliseconds] : facts.stage_ms) row["stages"][name] = milliseconds;
  for (const auto& [name, seconds] : facts.start_s) row["start_s"][name] = seconds;
  row["first_step_s"] = facts.first_step_s;
  row["loss"] = facts.loss;
  row["estimated_gb"] = facts.estimated_gb;
  row["graph"] = facts.captured;
  if (!facts.note.empty()) row["note"] = facts.note;
  for (const auto& [name, gigabytes] : facts.peaks_gb) row["peaks_gb"][name] = gigabytes;
  if (facts.gpu_peak_gb) row["gpu_peak_gb"] = *facts.gpu_peak_gb;
}

// A block for each line of the input and an answer of one line, so that a peer can have its turn in between.
void take_turns(StepBench& bench, int64_t steps) {
  std::string line;
  std::cout << nlohmann::json{{"ready", true}}.dump() << std::endl;
  while (std::getline(std::cin, line)) {
    nlohmann::json row = timing_summary("step", bench.run(steps));
    add_facts(bench.facts(), row);
    std::cout << row.dump() << std::endl;
  }
}

void run(const Arguments& arguments) {
  const bool has_recipe = arguments.config.find('=') == std::string::npos && !arguments.config.empty();
  std::vector<std::string> overrides = arguments.overrides;
  if (!has_recipe && !arguments.config.empty()) overrides.insert(overrides.begin(), arguments.config);
  const Config config = has_recipe ? load_config(arguments.config, overrides) : parse_config("{}", ".", overrides);
  StepBench bench(config.options, arguments.request);
  if (arguments.turns) return take_turns(bench, arguments.request.steps);
  const std::vector<double> step_ms = bench.run(arguments.request.steps);
  nlohmann::json row = timing_summary("step", step_ms);
  row["step_ms"] = step_ms;
  add_facts(bench.facts(), row);
  print_results(nlohmann::json::array({row}), arguments.as_json);
}

}  // namespace

void define_bench_step(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("config", arguments->config, "recipe; without one the defaults, with key=value on top");
  command.add_option("overrides", arguments->overrides, "key=value ...");
  command.add_option("--steps", arguments->request.steps, "steps to time")->check(CLI::PositiveNumber);
  command.add_option("--warm-up", arguments->request.warm_up, "steps before the clock starts")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--block", arguments->request.block,
                  "steps between two readings of the clock; 0: one on a CPU, all on a GPU")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--threads", arguments->request.threads, "torch's own threads; 0: all there are")
      ->check(CLI::Range(0, 1024));
  command
      .add_option("--channels", arguments->request.in_channels, "channels of the image; without it model.in_channels")
      ->check(CLI::PositiveNumber);
  command.add_option("--device", arguments->request.device, "cpu, cuda or cuda:N; without it a GPU where there is one");
  command.add_option("--cudnn-plans", arguments->request.cudnn_plans,
                     "plans that cuDNN may time for each convolution; 0: as training does");
  command.add_flag("--turns", arguments->turns,
                   "time a block for each line of standard input, answer with a line of JSON");
  command.add_flag("--json", arguments->as_json, "one JSON document on standard output");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace vox::cli
