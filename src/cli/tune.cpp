// voxloom tune CONFIG [key=value ...]: measured trials of settings; prints every one, and the recipe that came out.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/json_text.h"
#include "cli/make_data.h"
#include "cli/profile_output.h"
#include "cli/report.h"
#include "cli/writable.h"
#include "measure/tune.h"

namespace vox::cli {
namespace {

using nlohmann::json;

struct Arguments {
  std::vector<std::string> words, allow;
  TuneRequest request;
  std::string output, run;
  bool as_json = false;
};

std::string cell(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string number_or_dash(double value, int digits) {
  return value > 0 ? format_number(value, digits) : "-";
}

std::string header_line(const TuneRequest& request) {
  if (request.ablate)
    return cell("samples/s", 10) + cell("gain", 7) + cell("memory GB", 11) + cell("loss", 9) +
           "  verdict        settings";
  return cell("samples/s", 10) + cell("step ms", 10) + cell("predicted", 10) + cell("wait ms", 9) +
         cell("memory GB", 11) + cell("gain", 7) + cell("loss diff", 11) + "  verdict        settings";
}

std::string trial_line(const Trial& trial, const TuneRequest& request) {
  const std::string verdict = name_of(trial.verdict);
  const std::string ending = concat("  ", verdict, std::string(verdict.size() < 15 ? 15 - verdict.size() : 1, ' '),
                                    trial.name, trial.note.empty() ? "" : "\n            ", trial.note);
  const std::string speed = cell(number_or_dash(trial.samples_per_s, 2), 10);
  const std::string gain = cell(number_or_dash(trial.gain.value_or(0), 2), 7);
  const std::string memory = cell(number_or_dash(trial.gpu_memory_gb.value_or(trial.memory_gb), 2), 11);
  const auto loss = trial.equal_samples_loss;
  if (request.ablate) return speed + gain + memory + cell(loss ? format_number(*loss, 4) : "-", 9) + ending;
  return speed + cell(number_or_dash(trial.step_ms, 1), 10) +
         cell(number_or_dash(trial.predicted_step_ms.value_or(0), 1), 10) +
         cell(trial.step_ms > 0 ? format_number(trial.data_wait_ms, 1) : "-", 9) + memory + gain +
         cell(trial.loss_difference ? shortest(std::stod(format_number(*trial.loss_difference, 7))) : "-", 11) + ending;
}

json trial_json(const Trial& trial) {
  const auto number = [](const std::optional<double>& value) { return value ? json(*value) : json(nullptr); };
  const auto measured = [&](double value) { return trial.step_ms > 0 ? json(value) : json(nullptr); };
  return {{"name", trial.name},
          {"changes", trial.changes},
          {"verdict", name_of(trial.verdict)},
          {"samples_per_s", measured(trial.samples_per_s)},
          {"step_ms", measured(trial.step_ms)},
          {"predicted_step_ms", number(trial.predicted_step_ms)},
          {"data_wait_ms", measured(trial.data_wait_ms)},
          {"memory_gb", trial.memory_gb},
          {"gpu_memory_gb", number(trial.gpu_memory_gb)},
          {"gain", number(trial.gain)},
          {"loss_difference", number(trial.loss_difference)},
          {"losses", trial.losses},
          {"equal_samples_loss", number(trial.equal_samples_loss)},
          {"bottleneck", trial.bottleneck},
          {"note", trial.note},
          {"seconds", trial.seconds}};
}

json batches_json(const std::optional<TriedBatches>& batches) {
  if (!batches) return nullptr;
  return {{"fastest", batches->fastest},
          {"largest", batches->largest},
          {"too_large", batches->too_large ? json(*batches->too_large) : json(nullptr)}};
}

json result_json(const TuneResult& result, const std::string& yaml) {
  json document{{"trials", json::array()},
                {"chosen", result.chosen},
                {"evidence", result.evidence},
                {"speedup", result.speedup},
                {"speedup_of", result.speedup_of},
                {"note", result.speedup_note},
                {"compared", result.comparison ? to_json(*result.comparison) : json(nullptr)},
                {"not_tried", result.not_tried},
                {"batches", batches_json(result.batches)},
                {"yaml", yaml}};
  for (const Trial& trial : result.trials) document["trials"].push_back(trial_json(trial));
  return document;
}

void sort_tune_words(Arguments& arguments) {
  for (const std::string& word : arguments.words) {
    if (word.find('=') != std::string::npos && !path_exists(word))
      arguments.request.overrides.push_back(word);
    else if (arguments.request.recipe.empty())
      arguments.request.recipe = word;
    else
      throw CLI::ParseError("\"" + word + "\" is neither the recipe nor key=value", CLI::ExitCodes::ExtrasError);
  }
  if (arguments.request.recipe.empty()) throw CLI::RequiredError("CONFIG");
  if (arguments.request.ablate && !arguments.output.empty())
    throw CLI::ParseError("--ablate makes a table and chooses nothing that --output could write; --run keeps the table",
                          CLI::ExitCodes::ExcludesError);
  arguments.request.allow = {arguments.allow.begin(), arguments.allow.end()};
}

void print_summary(const TuneResult& result, const TuneRequest& request, const std::string& yaml) {
  if (!result.not_tried.empty())
    std::cout << "\nno time was left for: " << join(result.not_tried, ", ") << "; give more with --minutes\n";
  if (request.ablate) {
    std::cout
        << "\neach row is the recipe with that change alone, faster where it gains more than the recipe did by itself "
           "when it ran again; the loss is that after equally many samples, the first "
           "of training: too early to tell which setting is best in the end\n";
    return;
  }
  if (result.batches) {
    std::cout << "\nof the batches tried, " << result.batches->fastest << " is the fastest a sample, "
              << result.batches->largest << " the largest that fits";
    if (result.batches->too_large) std::cout << " (" << *result.batches->too_large << " does not)";
    std::cout << '\n';
  }
  if (result.chosen.empty() && !result.speedup_note.empty()) {
    std::cout << '\n' << result.speedup_note << '\n';
    return;
  }
  if (result.chosen.empty()) {
    std::cout << (result.trials.size() > 1 ? "\nnothing that was tried is faster than the recipe as it is\n"
                                           : "\nno other setting was tried: none promised a gain in the time given\n");
    return;
  }
  std::cout << "\nchosen: " << join(result.chosen, " ") << '\n';
  if (result.comparison)
    std::cout << "measured again, in turns: " << format_number(result.speedup, 2) << " times the " << result.speedup_of
              << " a second (step " << format_number(median_of(result.comparison->first_ms), 1) << " -> "
              << format_number(median_of(result.comparison->second_ms), 1) << " ms; ratio "
              << format_number(result.comparison->ratio, 3) << ", " << coverage_text(result.comparison->ratios.size())
              << ": " << format_number(result.comparison->interval.low, 3) << " to "
              << format_number(result.comparison->interval.high, 3) << ")\n";
  else
    std::cout << "not measured again: " << result.speedup_note << '\n';
  std::cout << '\n' << yaml;
}

void run(Arguments arguments) {
  sort_tune_words(arguments);
  TuneRequest& request = arguments.request;
  const Config config = load_config(request.recipe, request.overrides);
  require_writable(arguments.output);
  if (!arguments.run.empty()) require_writable(fs::path(arguments.run) / "tune.json");
  make_missing_data(config.options);
  std::ostream& table = arguments.as_json ? std::cerr : std::cout;  // grows while it measures
  std::cerr << "each line is a run of its own; this takes " << shortest(request.minutes) << " minutes at most\n";
  table << header_line(request) << std::endl;
  request.on_trial = [&](const Trial& trial) { table << trial_line(trial, request) << std::endl; };
  const TuneResult result = tune_recipe(request);
  const std::string yaml = tuned_yaml(request, result, arguments.output.empty() ? "tuned.yaml" : arguments.output);
  if (!arguments.output.empty()) write_file(arguments.output, yaml);
  const std::string document = json_text(result_json(result, yaml));
  if (!arguments.run.empty()) leave_in_folder(arguments.run, "tune.json", document);
  if (arguments.as_json)
    std::cout << document;
  else
    print_summary(result, request, yaml);
}

void define(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  TuneRequest& request = arguments->request;
  command.add_option("config", arguments->words, "CONFIG [key=value ...]: the recipe, and options to change in it")
      ->required()
      ->type_name("");
  command.add_option("--minutes", request.minutes, "time for all trials")->check(CLI::PositiveNumber);
  command.add_option("--allow", arguments->allow, "batch,precision,patch: what may change though the result does too")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"batch", "precision", "patch"}));
  CLI::Option* plan =
      command
          .add_option("--plan", request.plan,
                      "the guides' ladder, batch and precision included: conservative, balanced or aggressive")
          ->check(CLI::IsMember({"conservative", "balanced", "aggressive"}));
  command
      .add_flag("--ablate", request.ablate, "a table of what each of the guides' changes brings, alone and together")
      ->excludes(plan);
  command
      .add_option("--memory-target", request.memory_target,
                  "share of the host's and of the GPU's memory that a setting may use")
      ->check(CLI::Range(0.001, 1.0));
  command
      .add_option("--steps", request.steps,
                  "steps of each trial; without it until its median is stable, with --plan 50")
      ->check(CLI::PositiveNumber);
  command.add_option("--output", arguments->output, "write the recipe that came out to this file");
  command.add_option("--run", arguments->run, "leave every trial in this folder, and in its report.html");
  command.add_option("--device", request.device, "cpu, cuda or cuda:N; without it a GPU where there is one");
  command.add_flag("--json", arguments->as_json, "one JSON document on standard output");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace

CommandEntry tune_command() {
  return {"tune", "Search settings by running them; a recipe with the evidence comes out", define};
}

}  // namespace vox::cli
