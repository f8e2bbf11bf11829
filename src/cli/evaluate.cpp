// voxloom evaluate: scores of predictions against references, case by case, matched by file name without suffix.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/dose_source.h"
#include "cli/evaluate_output.h"
#include "cli/writable.h"
#include "io/format.h"
#include "io/orientation.h"
#include "metrics/metric.h"

namespace vox::cli {
namespace {

struct EvaluateOptions {
  std::string task, prediction, reference, csv;
  std::optional<int64_t> ignore_label;
  bool subset = false, keep_going = false, json = false;
};

// The longest suffix of a known format that `name` ends in; "" where none. Doses are exchanged as CSV, too.
std::string known_suffix(const std::string& name, const std::string& task) {
  std::string longest = task == "dose" && ends_with(name, ".csv") && name.size() > 4 ? ".csv" : "";
  for (const FormatEntry& format : all_formats())
    for (const std::string& suffix : format.suffixes)
      if (ends_with(name, suffix) && name.size() > suffix.size() && suffix.size() > longest.size()) longest = suffix;
  return longest;
}

std::string id_of(const fs::path& path, const std::string& task) {
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  return name.substr(0, name.size() - known_suffix(name, task).size());
}

bool is_volume_folder(const fs::path& path) {
  if (!fs::is_directory(path)) return false;
  return std::any_of(all_formats().begin(), all_formats().end(),
                     [&](const FormatEntry& format) { return format.matches({}, path); });
}

using Volumes = std::map<std::string, std::string>;  // id -> name

void add_volumes(Volumes& volumes, const fs::path& folder, const std::string& before_id, const std::string& task) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool volume = entry.is_directory() ? is_volume_folder(entry.path()) : !known_suffix(name, task).empty();
    if (!volume || name.starts_with(".")) continue;
    const auto [place, added] = volumes.emplace(before_id + id_of(entry.path(), task), entry.path().string());
    // Beside a submission's CSV lies the volume that it was made from: the CSV is what is handed in.
    const bool submitted = ends_with(name, ".csv") != ends_with(place->second, ".csv");
    if (!added && submitted && ends_with(name, ".csv")) place->second = entry.path().string();
    VOX_CHECK(added || submitted, folder.string(), ": ", fs::path(place->second).filename().string(), " and ", name,
              " are both case ", place->first, "; keep one of them.");
  }
}

// Of cases whose ids have folders: s1/5 is s1/5.tif.
void add_volumes_below(Volumes& volumes, const fs::path& folder, const std::string& before_id,
                       const std::string& task) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") || !entry.is_directory() || is_volume_folder(entry.path())) continue;
    add_volumes(volumes, entry.path(), before_id + name + "/", task);
    add_volumes_below(volumes, entry.path(), before_id + name + "/", task);
  }
}

Volumes volumes_in(const fs::path& folder, const std::string& task) {
  Volumes volumes;
  add_volumes(volumes, folder, "", task);
  if (volumes.empty()) add_volumes_below(volumes, folder, "", task);
  VOX_CHECK(!volumes.empty(), folder.string(), ": there is no volume in this folder.");
  return volumes;
}

bool is_folder_of_cases(const std::string& path) {
  return fs::is_directory(path) && !is_volume_folder(path);
}

VolumeSource volume_source(const std::string& name) {
  const std::shared_ptr<const VolumeReader> reader = open_volume(name);
  return {.name = name, .info = reader->info(), .read = [reader](const Box3& box, std::byte* out) {
            reader->read(box, 0, out, nullptr);
          }};
}

// Their voxels are compared by place, so they have to point the same way.
void require_same_axes(const VolumeSource& prediction, const VolumeSource& reference) {
  const std::optional<Affine>&ours = prediction.info.affine, &theirs = reference.info.affine;
  VOX_CHECK(!ours || !theirs || axis_codes(*ours) == axis_codes(*theirs), prediction.name, ": the prediction is ",
            axis_codes(*ours), " but the reference ", reference.name, " is ", axis_codes(*theirs),
            ": they point different ways; turn both by `voxloom convert --orientation RAS`, or correct the header that "
            "is wrong.");
}

Scores score_case(const EvaluateOptions& options, const std::string& prediction, const std::string& reference,
                  ThreadPool& pool) {
  const bool dose = options.task == "dose";
  const VolumeSource predicted = dose ? dose_prediction(prediction) : volume_source(prediction);
  const VolumeSource referred = dose ? dose_reference(reference) : volume_source(reference);
  require_same_axes(predicted, referred);
  return find_metric(options.task).evaluate(predicted, referred, {.ignore_label = options.ignore_label}, pool);
}

// Runs one case; with --keep-going what goes wrong is kept for the end.
template <class Work>
void attempt(Results& results, const std::string& id, bool keep_going, Work work) {
  try {
    work();
  } catch (const Error& error) {
    if (!keep_going || error.fault() != Fault::kInput) throw;
    results.failures[id] = error.what();
  }
}

Results evaluate_folders(const EvaluateOptions& options, ThreadPool& pool) {
  const Volumes predictions = volumes_in(options.prediction, options.task);
  const Volumes references = volumes_in(options.reference, options.task);
  Results results;
  for (const auto& [id, reference] : references) {
    if (options.subset && !predictions.count(id)) continue;
    attempt(results, id, options.keep_going, [&, &id = id, &reference = reference] {
      const auto prediction = predictions.find(id);
      VOX_CHECK(prediction != predictions.end(), "case ", id, ": ", reference, " has no prediction in ",
                options.prediction,
                "; predict it, or pass --subset to score what was predicted, as a split of the cases.");
      results.cases[id] = score_case(options, prediction->second, reference, pool);
    });
  }
  for (const auto& [id, prediction] : predictions) {
    if (references.count(id)) continue;
    attempt(results, id, options.keep_going, [&, &id = id, &prediction = prediction] {
      throw Error(concat("case ", id, ": ", prediction, " has no reference in ", options.reference,
                         "; remove it, or pass --keep-going to score the others."));
    });
  }
  return results;
}

Results evaluate_all(const EvaluateOptions& options) {
  ThreadPool pool(available_cpus());
  for (const std::string& path : {options.prediction, options.reference})  // or FILE:DATASET
    VOX_CHECK(fs::exists(path) || path.find(':') != std::string::npos, path, ": there is no such file or folder.");
  const bool folders = is_folder_of_cases(options.prediction);
  VOX_CHECK(folders == is_folder_of_cases(options.reference), "--prediction ", options.prediction, " is a ",
            folders ? "folder" : "volume", " but --reference ", options.reference, " is a ",
            folders ? "volume" : "folder", "; give two volumes or two folders.");
  if (folders) return evaluate_folders(options, pool);
  Results results;
  const std::string id = id_of(options.reference, options.task);
  attempt(results, id, options.keep_going,
          [&] { results.cases[id] = score_case(options, options.prediction, options.reference, pool); });
  return results;
}

void run_evaluate(const EvaluateOptions& options) {
  const MetricEntry& metric = find_metric(options.task);
  require_writable(options.csv);
  const Results results = evaluate_all(options);
  std::vector<Scores> scores;
  for (const auto& [id, of_case] : results.cases) scores.push_back(of_case);
  const Scores mean = metric.mean(scores);
  if (!results.cases.empty() || options.keep_going) {
    if (!options.csv.empty()) write_csv(options.csv, metric, results);
    if (options.json) {
      print_json(metric, results, mean);
    } else if (!results.cases.empty()) {
      print_table(metric, results, mean);
    }
  }
  if (results.failures.empty()) return;
  for (const auto& [id, sentence] : results.failures) std::cerr << "voxloom: " << sentence << '\n';
  throw Error(concat(results.failures.size(), " of ", results.failures.size() + results.cases.size(),
                     " cases could not be evaluated (above); the mean is of the others."));
}

void define(CLI::App& command) {
  auto options = std::make_shared<EvaluateOptions>();
  std::vector<std::string> tasks;
  for (const MetricEntry& metric : all_metrics()) tasks.push_back(metric.name);
  command.add_option("--task", options->task, "What is scored: " + join(tasks, ", "))
      ->required()
      ->check(CLI::IsMember(tasks));
  command.add_option("--prediction", options->prediction, "A volume, or a folder of them")->required();
  command.add_option("--reference", options->reference, "A volume (dose: an OpenKBP patient), or a folder of them")
      ->required();
  command.add_option("--ignore-label", options->ignore_label, "Voxels with this label in the reference do not count");
  command.add_option("--csv", options->csv, "Write every score of every case to this file");
  command.add_flag("--subset", options->subset,
                   "Folders: score the cases that were predicted, as one split of them; other references do not count");
  command.add_flag("--keep-going", options->keep_going, "Score what can be scored, name the rest, exit 1");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.callback([options] { run_evaluate(*options); });
}

}  // namespace

CommandEntry evaluate_command() {
  return {"evaluate", "Score predictions against references.", define};
}

}  // namespace vox::cli
