// voxloom bench step [CONFIG] [key=value ...]: a training step without its data path.
#include <CLI/CLI.hpp>
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
  bool as_json = false;
};

void run(const Arguments& arguments) {
  const bool has_recipe = arguments.config.find('=') == std::string::npos && !arguments.config.empty();
  std::vector<std::string> overrides = arguments.overrides;
  if (!has_recipe && !arguments.config.empty()) overrides.insert(overrides.begin(), arguments.config);
  const Config config = has_recipe ? load_config(arguments.config, overrides) : parse_config("{}", ".", overrides);
  const StepBenchResult result = bench_step(config.options, arguments.request);
  nlohmann::json row = timing_summary("step", result.step_ms);
  for (const auto& [name, milliseconds] : result.stage_ms) row["stages"][name] = milliseconds;
  row["step_ms"] = result.step_ms;
  row["loss"] = result.loss;
  print_results(nlohmann::json::array({row}), arguments.as_json);
}

}  // namespace

void define_bench_step(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("config", arguments->config, "recipe; without one the defaults, with key=value on top");
  command.add_option("overrides", arguments->overrides, "key=value ...");
  command.add_option("--steps", arguments->request.steps, "steps to time")->check(CLI::PositiveNumber);
  command.add_option("--warm-up", arguments->request.warm_up, "steps before the clock starts");
  command.add_option("--threads", arguments->request.threads, "torch's own threads; 0: all there are");
  command.add_option("--channels", arguments->request.in_channels, "channels of the image")->check(CLI::PositiveNumber);
  command.add_option("--device", arguments->request.device, "cpu, cuda or cuda:N");
  command.add_flag("--json", arguments->as_json, "one JSON document on standard output");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace vox::cli
