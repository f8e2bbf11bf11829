#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/case_problems.h"
#include "cli/inspect.h"
#include "cli/json_text.h"
#include "cli/make_data.h"
#include "config/config.h"
#include "io/format.h"
#include "volume/dataset.h"
#include "volume/store.h"

namespace vox::cli {
namespace {

using nlohmann::ordered_json;

std::string split_of(const Dataset& dataset, int64_t index) {
  const auto holds = [&](const std::vector<int64_t>& split) {
    return std::find(split.begin(), split.end(), index) != split.end();
  };
  return holds(dataset.train)        ? "train"
         : holds(dataset.validation) ? "validation"
         : holds(dataset.test)       ? "test"
                                     : "none";
}

ordered_json case_to_json(const Store& store, int64_t index) {
  const Case& one = store.dataset().cases[static_cast<size_t>(index)];
  const CaseFacts& facts = store.facts(index);
  ordered_json out;
  out["id"] = one.id;
  out["group"] = one.group;
  out["split"] = split_of(store.dataset(), index);
  out["shape"] = {facts.extent.z, facts.extent.y, facts.extent.x};
  out["channels"] = facts.channels;
  out["dtype"] = name_of(open_volume(one.images.front())->info().dtype);
  out["spacing"] = {facts.spacing.z_mm, facts.spacing.y_mm, facts.spacing.x_mm};
  out["minimum"] = facts.channel_min;
  out["maximum"] = facts.channel_max;
  out["mean"] = facts.channel_mean;
  out["std"] = facts.channel_std;
  out["labels"] = ordered_json::object();
  for (const auto& [value, voxels] : facts.label_counts) out["labels"][std::to_string(value)] = voxels;
  return out;
}

// A difference between cases that networks or statistics trip over.
void judge(const std::string& what, const std::string& key, const ordered_json& cases,
           std::vector<std::string>* problems) {
  std::vector<std::string> seen;
  for (const ordered_json& one : cases) {
    const std::string value = one[key].is_string() ? one[key].get<std::string>() : one[key].dump();
    if (std::find(seen.begin(), seen.end(), value) == seen.end()) seen.push_back(value);
  }
  if (seen.size() > 1) problems->push_back(concat(what, " differ between cases: ", join(seen, ", ")));
}

ordered_json to_json(const Store& store) {
  ordered_json out;
  const Dataset& dataset = store.dataset();
  out["cases"] = ordered_json::array();
  std::map<int64_t, int64_t> labels;
  std::vector<std::string> problems;
  for (int64_t index = 0; index < static_cast<int64_t>(dataset.cases.size()); ++index) {
    out["cases"].push_back(case_to_json(store, index));
    const CaseFacts& facts = store.facts(index);
    for (const auto& [value, voxels] : facts.label_counts) labels[value] += voxels;
    const Case& item = dataset.cases[static_cast<size_t>(index)];
    for (const std::string& problem : problems_of(item, {facts.channel_min, facts.channel_max, facts.label_counts}))
      problems.push_back(problem);
  }
  for (const SkippedCase& skipped : store.skipped())
    problems.push_back(concat("case ", skipped.id, ": ", skipped.reason));
  judge("types", "dtype", out["cases"], &problems);
  out["splits"] = {
      {"train", dataset.train.size()}, {"validation", dataset.validation.size()}, {"test", dataset.test.size()}};
  out["labels"] = ordered_json::object();
  for (const auto& [value, voxels] : labels) out["labels"][std::to_string(value)] = voxels;
  out["skipped"] = ordered_json::array();
  for (const SkippedCase& skipped : store.skipped())
    out["skipped"].push_back({{"id", skipped.id}, {"reason", skipped.reason}});
  out["problems"] = problems;
  return out;
}

std::string numbers(const ordered_json& values) {  // six digits, as people read them
  std::vector<std::string> texts;
  for (const ordered_json& value : values) texts.push_back(concat(value.get<double>()));
  return join(texts, ", ");
}

std::string shape_text(const ordered_json& shape) {
  return concat(Extent3{shape[0], shape[1], shape[2]});
}

std::string labels_text(const ordered_json& counts) {
  constexpr size_t kMost = 16;
  double all = 0;
  for (const auto& [value, voxels] : counts.items()) all += voxels.get<double>();
  std::vector<std::string> texts;
  for (const auto& [value, voxels] : counts.items())
    if (texts.size() < kMost)
      texts.push_back(concat(value, ": ", format_number(100 * voxels.get<double>() / all, 2), " %"));
  if (counts.size() > kMost) texts.push_back(concat("and ", counts.size() - kMost, " more"));
  return join(texts, ", ");
}

void print(const ordered_json& facts, bool preprocessed) {
  std::cout << facts["cases"].size() << " cases: " << facts["splits"]["train"] << " train, "
            << facts["splits"]["validation"] << " validation, " << facts["splits"]["test"] << " test\n";
  for (const ordered_json& one : facts["cases"]) {
    std::cout << "  " << one["id"].get<std::string>() << "  " << one["split"].get<std::string>() << "  "
              << shape_text(one["shape"]) << ' ' << one["dtype"].get<std::string>() << "  spacing "
              << numbers(one["spacing"]) << " mm  " << (preprocessed ? "preprocessed mean " : "mean ")
              << numbers(one["mean"]);
    if (!one["labels"].empty()) std::cout << "  labels " << labels_text(one["labels"]);
    std::cout << '\n';
  }
  if (!facts["labels"].empty()) std::cout << "labels in all: " << labels_text(facts["labels"]) << '\n';
  std::cout << facts["skipped"].size() << " skipped\n";
  for (const ordered_json& problem : facts["problems"]) std::cout << "problem: " << problem.get<std::string>() << '\n';
  if (facts["problems"].empty()) std::cout << "no problems found\n";
}

}  // namespace

void inspect_config(const InspectRequest& request) {
  const Config config = load_config(request.name, request.overrides);
  for (const std::string& warning : config.warnings) std::cerr << "voxloom: " << warning << '\n';
  DataOptions data = config.options.data;
  data.on_bad_case = "skip";  // all that is wrong is to be seen, not the first of it
  const TrainingOptions& training = config.options.training;
  ThreadPool pool(available_cpus());
  make_missing_data(config.options);
  const Dataset dataset = make_dataset(data, training.fold, static_cast<uint64_t>(training.seed));
  const Store store(dataset, data, pool);
  const ordered_json facts = to_json(store);
  if (request.as_json)
    std::cout << json_text(facts);
  else
    print(facts, !data.preprocess.empty());
}

}  // namespace vox::cli
