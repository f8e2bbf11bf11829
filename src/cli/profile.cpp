// voxloom profile CONFIG [CONFIG2] [key=value ...]: where the time of a step goes, what limits it, what would help.
#include <CLI/CLI.hpp>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/json_text.h"
#include "cli/make_data.h"
#include "cli/profile_on.h"
#include "cli/profile_output.h"
#include "cli/report.h"
#include "cli/writable.h"

namespace vox::cli {
namespace {

using nlohmann::json;

struct Arguments {
  std::vector<std::string> words;
  std::string device, trace, on, run;
  int64_t steps = 0, losses = 0;
  double seconds = 0;
  bool data_only = false, no_data = false, as_json = false, alone = false, turns = false, warm_cache = false;
};

struct Words {
  std::vector<std::string> recipes, overrides;
};

Words sort_profile_words(const std::vector<std::string>& words) {
  Words sorted;
  for (const std::string& word : words) {
    const bool change = word.find('=') != std::string::npos && !path_exists(word);
    (change ? sorted.overrides : sorted.recipes).push_back(word);
  }
  if (sorted.recipes.empty()) throw CLI::RequiredError("CONFIG");
  if (sorted.recipes.size() > 2)
    throw CLI::ParseError("\"" + sorted.recipes[2] + "\" is a third recipe; two at most are compared",
                          CLI::ExitCodes::ExtrasError);
  return sorted;
}

ProfileRequest request_of(const Arguments& arguments, const std::string& recipe,
                          const std::vector<std::string>& changes) {
  ProfileRequest request;
  request.config = load_config(recipe, changes);
  request.device = arguments.device;
  if (arguments.data_only) request.part = ProfilePart::kDataOnly;
  if (arguments.no_data) request.part = ProfilePart::kNoData;
  request.warm_cache = arguments.warm_cache;
  if (arguments.losses > 0) request.losses = arguments.losses;
  if (arguments.steps > 0) {
    request.steps = arguments.steps;
    request.most_seconds = std::numeric_limits<double>::infinity();  // as many as were asked for
  }
  if (arguments.seconds > 0) request.most_seconds = arguments.seconds;
  request.details = arguments.seconds == 0;
  make_missing_data(request.config.options);
  return request;
}

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Two recipes, or one with and without its changes, on the same data.
std::optional<CompareRequest> wanted_comparison(const Arguments& arguments, const Words& words) {
  if (arguments.alone || arguments.data_only || arguments.no_data) return std::nullopt;
  std::vector<std::string> of_both = words.overrides;
  if (words.recipes.size() == 1) std::erase_if(of_both, [](const std::string& text) { return !says_which_data(text); });
  if (words.recipes.size() == 1 && of_both.size() == words.overrides.size()) return std::nullopt;
  CompareRequest request{.first = with({words.recipes.front()}, of_both),
                         .second = with({words.recipes.back()}, words.overrides),
                         .device = arguments.device};
  request.warm_cache = arguments.warm_cache;
  if (arguments.steps > 0) request.seconds = 6;
  return request;
}

void predict(const Arguments& arguments, const Words& words) {
  if (words.recipes.size() > 1)
    throw CLI::ParseError("--on predicts one recipe at a time", CLI::ExitCodes::ExtrasError);
  print_prediction(load_config(words.recipes.front(), words.overrides).options, arguments.on, arguments.as_json);
}

void run(const Arguments& arguments) {
  const Words words = sort_profile_words(arguments.words);
  if (!arguments.on.empty()) return predict(arguments, words);
  if (words.recipes.size() == 2 && (arguments.data_only || arguments.no_data))
    throw CLI::ParseError("two recipes are compared by whole steps, without --data-only and --no-data",
                          CLI::ExitCodes::ExtrasError);
  const ProfileRequest request = request_of(arguments, words.recipes.back(), words.overrides);
  if (!arguments.run.empty()) require_writable(fs::path(arguments.run) / "profile.json");
  if (arguments.turns) return serve_turns(request, std::cin, std::cout);
  const std::optional<CompareRequest> comparison = wanted_comparison(arguments, words);
  if (comparison && words.recipes.size() == 2) request_of(arguments, words.recipes.front(), words.overrides);
  const Profile profile = profile_recipe(request);
  std::string trace;
  if (!arguments.trace.empty()) trace = write_trace(profile.record, arguments.trace);
  std::optional<Comparison> compared;
  std::string refused;
  try {
    if (comparison) compared = compare_recipes(*comparison);
  } catch (const Error& error) {
    if (words.recipes.size() == 2) throw;
    refused = error.what();  // the recipe may not run at all without its changes
    std::cerr << "no comparison with the recipe unchanged: " << refused << '\n';
  }
  json document = to_json(profile);
  if (!trace.empty()) document["trace"] = trace;
  if (compared) document["compared"] = to_json(*compared);
  if (!arguments.run.empty()) leave_in_folder(arguments.run, "profile.json", json_text(document));
  if (arguments.as_json) {
    std::cout << json_text(document);
    return;
  }
  if (comparison) std::cout << join(comparison->second, " ") << '\n';
  std::cout << waterfall(profile);
  if (!trace.empty()) std::cout << "\ntrace: " << trace << " (chrome://tracing, Perfetto)\n";
  if (compared)
    std::cout << '\n' << comparison_text(*compared, join(comparison->first, " "), join(comparison->second, " "));
}

void define(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command
      .add_option("config", arguments->words,
                  "CONFIG [CONFIG2] [key=value ...]: a recipe; a second one, or changes, are compared with it")
      ->required()
      ->type_name("");
  command.add_option("--steps", arguments->steps, "steps to measure; without it until the median is stable")
      ->check(CLI::PositiveNumber);
  auto* data_only = command.add_flag("--data-only", arguments->data_only, "the loader alone, without a network");
  command.add_flag("--no-data", arguments->no_data, "the step on one batch that stays, without the loader")
      ->excludes(data_only);
  CLI::Option* const on = command.add_option(
      "--on", arguments->on,
      "predict the step on this GPU, which need not be here (rtx3090, rtx4090, a100-40, a100-80, h100, h200, or all)");
  command.add_option("--run", arguments->run, "leave the result in this folder, and in its report.html")->excludes(on);
  command.add_option("--trace", arguments->trace, "write every span to this file (or folder) for Perfetto")
      ->excludes(on);
  command.add_option("--device", arguments->device, "cpu, cuda or cuda:N; without it a GPU where there is one");
  command.add_flag("--json", arguments->as_json, "one JSON document on standard output");
  command.add_flag("--warm-cache", arguments->warm_cache,
                   "first load all volumes that fit into memory, as the first epoch would");
  command.add_flag("--alone", arguments->alone, "changes apply, and nothing is compared");
  command
      .add_option("--seconds", arguments->seconds,
                  "time for the steps, at most; nothing but their times is measured then")
      ->check(CLI::PositiveNumber);
  command.add_option("--losses", arguments->losses, "steps whose loss is given")->check(CLI::PositiveNumber);
  command.add_flag("--turns", arguments->turns)->group("");  // the other side of a comparison
  command.callback([arguments] { run(*arguments); });
}

}  // namespace

CommandEntry profile_command() {
  return {"profile", "Where the time of a step goes, what limits it, and what would help", define};
}

}  // namespace vox::cli
