#include "measure/tune.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/write.h"
#include "measure/tune_trials.h"

namespace vox {
namespace {

// 32,64 is a list on the command line and a word in a file.
std::string yaml_value(const std::string& value) {
  const bool list = value.find(',') != std::string::npos && value.front() != '[' && value.front() != '{';
  return list ? concat("[", value, "]") : value;
}

std::optional<Options> read_alone(const std::string& recipe) {  // nullopt: it needs what the command line says
  try {
    return load_config(recipe).options;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void measure_again(TrialRunner& runner, TuneResult& result) {
  constexpr double kSeconds = 20, kSecondsOfShortTrials = 5;
  if (result.chosen.empty()) return;
  const TuneRequest& request = runner.request();
  CompareRequest compare{.first = {request.recipe}, .second = {}, .device = request.device};
  compare.first.insert(compare.first.end(), request.overrides.begin(), request.overrides.end());
  compare.second = compare.first;
  compare.second.insert(compare.second.end(), result.chosen.begin(), result.chosen.end());
  compare.seconds = request.steps > 0 ? kSecondsOfShortTrials : kSeconds;
  compare.warm_cache = true;
  const auto voxels = [](const Options& options) {
    const int64_t samples = options.data.batch_size * options.training.accumulate;
    return static_cast<double>(samples * options.data.patch_size.voxels());
  };
  const Options &before = runner.options(), after = runner.config_with(changes_of(result.chosen)).options;
  const double work = voxels(after) / voxels(before);
  try {
    result.comparison = runner.compare(compare);
    result.speedup = work / result.comparison->ratio;
    if (!(before.data.patch_size == after.data.patch_size)) result.speedup_of = "voxels";
    require_faster_again(result, work);
  } catch (const Error& error) {
    result.speedup_note = error.what();
  }
  if (result.chosen.empty()) result.batches = tried_batches(runner, {});
}

void require_faster_again(TuneResult& result, double work) {
  if (!result.comparison || work / result.comparison->ratio > 1) return;
  const Interval& interval = result.comparison->interval;
  result.speedup_note =
      concat(join(result.chosen, " "), " seemed faster, and was not when it was measured again: a step takes ",
             format_number(result.comparison->ratio, 3), " times as long (",
             coverage_text(result.comparison->ratios.size()), ": ", format_number(interval.low, 3), " to ",
             format_number(interval.high, 3), "); does something else run on this machine?");
  result.chosen.clear();
  result.evidence.clear();
  result.comparison.reset();
  result.speedup = 1;
  result.speedup_of = "samples";
}

TuneResult tune_recipe(const TuneRequest& request) {
  TrialRunner runner(request);
  if (request.ablate) return ablate_settings(runner);
  TuneResult result = request.plan.empty() ? search_settings(runner) : climb_plan(runner);
  measure_again(runner, result);
  return result;
}

std::string tuned_yaml(const TuneRequest& request, const TuneResult& result, const std::string& output_file) {
  const fs::path folder = fs::absolute(output_file).parent_path();
  std::string text = concat("# Made by voxloom tune from ", fs::path(request.recipe).filename().string(), ": ",
                            format_number(result.speedup, 2), " times its ", result.speedup_of, " a second");
  if (result.comparison)
    text +=
        concat(" (step time ", format_number(result.comparison->ratio, 3), ", ",
               coverage_text(result.comparison->ratios.size()), ": ", format_number(result.comparison->interval.low, 3),
               " to ", format_number(result.comparison->interval.high, 3), ", measured in turns)");
  std::vector<std::string> words = request.overrides;
  words.insert(words.end(), result.chosen.begin(), result.chosen.end());
  const Options measured = load_config(request.recipe, words).options;
  const std::optional<Options> alone = read_alone(request.recipe);
  if (!alone) {
    for (size_t i = 0; i < result.chosen.size(); ++i)
      text += concat("\n# ", result.chosen[i], ": ", result.evidence[i]);
    return concat(text, "\n", to_yaml(measured));
  }
  text +=
      concat("\nextends: ", flow_text(scalar_tree(fs::relative(fs::absolute(request.recipe), folder).string())), "\n");
  std::map<std::string, std::vector<std::string>> sections;
  const auto add_line = [&](const std::string& key, const std::string& value) {
    const size_t dot = key.find('.');
    sections[key.substr(0, dot)].push_back(concat("  ", key.substr(dot + 1), ": ", value));
  };
  const Changes chosen = changes_of(result.chosen);
  for (const auto& [key, value] : changes_of(overrides_between(*alone, measured)))
    if (!chosen.contains(key)) add_line(key, value);
  for (size_t i = 0; i < result.chosen.size(); ++i) {
    const auto [key, value] = *changes_of({result.chosen[i]}).begin();
    add_line(key, concat(yaml_value(value), "  # ", result.evidence[i]));
  }
  for (const auto& [section, lines] : sections) text += concat(section, ":\n", join(lines, "\n"), "\n");
  return text;
}

}  // namespace vox
