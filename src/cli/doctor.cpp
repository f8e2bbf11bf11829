// voxloom doctor [CONFIG] [key=value ...]: what of this machine, and of a recipe on it, is fine, will hurt or will
// fail. Exit status: 3 where the machine will fail, else 1 where the recipe will, else 0; the report is printed either
// way.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/json_text.h"
#include "cli/shell_word.h"
#include "cli/torch_version.h"
#include "config/config.h"
#include "config/device_name.h"
#include "measure/doctor.h"
#include "measure/doctor_child.h"
#include "measure/doctor_recipe.h"
#include "volume/shelf.h"

namespace vox::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kRecipeFails = 1, kMachineFails = 3;
constexpr double kChildSeconds = 60;

struct Arguments {
  std::string config, device, probe;
  std::vector<std::string> overrides;
  bool as_json = false;
};

MachineView this_machine(const std::string& cache_dir) {
  MachineView machine;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) machine.visible = visible;
  machine.torch = torch_facts();
  machine.torch.loaded = loaded_torch_version();
  machine.torch.trials = try_convolutions(machine.torch);
  machine.gpus = read_gpus(load_gpu_driver(), getpid());
  machine.folders = {{"run folder", fs::absolute("runs")}, {"cache folder", cache_folder(cache_dir)}};
  machine.try_bfloat16 = [] { return run_this_program({"doctor", "--probe", "bfloat16"}, kChildSeconds); };
  return machine;
}

ordered_json to_json(const std::vector<Finding>& findings) {
  ordered_json rows = ordered_json::array();
  for (const Finding& finding : findings)
    rows.push_back({{"name", finding.name},
                    {"verdict", name_of(finding.verdict)},
                    {"sentence", finding.sentence},
                    {"proof", finding.proof}});
  return rows;
}

void print(const std::string& title, const std::vector<Finding>& findings) {
  std::cout << title << '\n';
  for (const Finding& finding : findings) {
    std::cout << "  " << std::left << std::setw(9) << name_of(finding.verdict) << "  " << std::setw(13) << finding.name
              << "  " << finding.sentence << '\n';
    if (finding.verdict != Outlook::kFine) std::cout << std::string(28, ' ') << "see: " << finding.proof << '\n';
  }
}

void print_summary(Outlook verdict) {
  std::cout << (verdict == Outlook::kFine    ? "Everything is fine."
                : verdict == Outlook::kHurts ? "Training will run, and could run better."
                                             : "Something will fail; see above.")
            << '\n';
}

std::vector<Finding> examine(const Config& config, const Arguments& arguments, const MachineView& machine) {
  RecipeFacts facts = recipe_facts(config, shell_word(arguments.config), machine);
  for (const std::string& word : arguments.overrides) facts.changes.push_back(shell_word(word));
  if (!arguments.device.empty()) facts.changes.push_back("--device " + arguments.device);
  return examine_recipe(facts);
}

void run(const Arguments& arguments) {
  if (!arguments.probe.empty()) return convolve_bfloat16();
  const bool has_recipe = !arguments.config.empty();
  const Config config = has_recipe ? load_config(arguments.config, arguments.overrides) : Config{};
  VOX_CHECK(arguments.device.empty() || is_device_name(arguments.device), "--device is \"", arguments.device,
            "\"; it is cpu, cuda or cuda:N");
  MachineView machine = this_machine(config.options.data.cache_dir);
  machine.device = arguments.device;
  const std::vector<Finding> of_machine = examine_machine(machine);
  std::vector<Finding> of_recipe;
  if (has_recipe) of_recipe = examine(config, arguments, machine);
  const Outlook overall = std::max(worst(of_machine), worst(of_recipe));
  if (arguments.as_json) {
    ordered_json out{{"verdict", name_of(overall)}, {"machine", to_json(of_machine)}};
    if (has_recipe) out["recipe"] = to_json(of_recipe);
    std::cout << json_text(out);
  } else {
    print("This machine", of_machine);
    if (has_recipe) print(arguments.config, of_recipe);
    print_summary(overall);
  }
  if (worst(of_machine) == Outlook::kFails) throw CLI::RuntimeError(kMachineFails);
  if (worst(of_recipe) == Outlook::kFails) throw CLI::RuntimeError(kRecipeFails);
}

void define(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("config", arguments->config, "recipe to look at as well");
  command.add_option("overrides", arguments->overrides, "key=value ...");
  command.add_option("--device", arguments->device,
                     "cpu, cuda or cuda:N, that the recipe is to train on; without it a GPU where there is one");
  command.add_flag("--json", arguments->as_json, "one JSON document on standard output");
  command.add_option("--probe", arguments->probe, "only run one operation that may kill the process: bfloat16")
      ->check(CLI::IsMember({"bfloat16"}));
  command.callback([arguments] { run(*arguments); });
}

}  // namespace

CommandEntry doctor_command() {
  return {"doctor", "What of this machine and of a recipe is fine, will hurt or will fail, and what to do", define};
}

}  // namespace vox::cli
