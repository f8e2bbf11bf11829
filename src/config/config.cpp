#include "config/config.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "config/aliases.h"
#include "config/expand.h"
#include "config/layers.h"
#include "config/presets.h"
#include "config/read.h"
#include "config/schema.h"
#include "config/write.h"

namespace vox {
namespace {

struct Resolved {  // what an option ends up with
  Tree value;
  std::string written;  // the key it was written as
  size_t layer;
  std::filesystem::path folder;
};
using Values = std::map<std::string, Resolved>;

void report_key(Config& config, const KeyReport& report) {
  const auto same = [&](const KeyReport& other) { return other.key == report.key; };
  const auto found = std::find_if(config.keys.begin(), config.keys.end(), same);
  if (found != config.keys.end())
    *found = report;
  else
    config.keys.push_back(report);
}

void warn_once(Config& config, const std::string& warning) {
  const auto& warnings = config.warnings;
  if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) config.warnings.push_back(warning);
}

void require_option(const Assignment& assignment) {
  const Schema& schema = Schema::get();
  if (schema.find(assignment.key)) return;
  VOX_CHECK(!schema.is_section(assignment.key), assignment.key, " (", assignment.value.where,
            "): expected a group of options, got \"", tree_text(assignment.value), "\"");
  throw Error(
      concat(assignment.key, " (", assignment.value.where, "): unknown option", schema.suggestion(assignment.key)));
}

// Two names of one option in one file: both are legal, so say which one holds.
void set(Config& config, Values& values, const std::string& key, Resolved resolved) {
  const auto before = values.find(key);
  if (before != values.end() && before->second.layer == resolved.layer && before->second.written != resolved.written)
    warn_once(config, concat(before->second.written, " (", before->second.value.where, ") and ", resolved.written, " (",
                             resolved.value.where, ") both set ", key, "; the last one, ", tree_text(resolved.value),
                             ", holds"));
  values[key] = std::move(resolved);
}

struct Place {
  size_t layer;
  bool inherited;
};

void apply(Config& config, Values& values, const Assignment& assignment, const Place& place) {
  Translation translation = translate(assignment.key, assignment.value);
  if (translation.use == KeyUse::kUsed) require_option(assignment);
  report_key(config, {assignment.key, translation.use, translation.note, place.inherited});
  if (!translation.note.empty()) warn_once(config, concat(assignment.key, " ", translation.note));
  if (translation.use == KeyUse::kNoEffect) return;
  set(config, values, translation.key, {std::move(translation.value), assignment.key, place.layer, assignment.folder});
}

void make_absolute(Tree& value, const std::filesystem::path& folder) {
  if (value.kind != Tree::Kind::kScalar || value.scalar.empty()) return;
  value.scalar = (folder / value.scalar).lexically_normal().string();
}

// Only what holds in the end is expanded and checked: a recipe's ${DATA} need not be set where data.root= is given.
Tree final_values(const Values& values) {
  Tree map;
  map.kind = Tree::Kind::kMap;
  for (const auto& [key, resolved] : values) {
    Tree value = expand_variables(resolved.value, key);
    if (Schema::get().find(key)->spec.form == Form::kPath) make_absolute(value, resolved.folder);
    if (resolved.written != key) value.where += concat(", as ", resolved.written);
    map.members.emplace_back(key, std::move(value));
  }
  return map;
}

Config resolve(const Layers& layers) {
  Config config;
  config.warnings = layers.warnings;
  if (layers.extends) report_key(config, {"extends", KeyUse::kUsed, ""});
  Values values;
  const size_t count = layers.layers.size();
  for (size_t layer = 0; layer < count; ++layer)  // the last two are the recipe itself and the command line
    for (const Assignment& assignment : layers.layers[layer].assignments)
      apply(config, values, assignment, {layer, layer + 2 < count});
  const Tree map = final_values(values);
  Options plain;  // of the recipe alone: it names what everything written stands upon
  Reader first(map);
  plain.describe(first);
  apply_preset(plain.augmentation.preset, plain.data.patch_size, config.options);
  if (plain.data.target == "regression") config.options.validation.metric = "mae";
  if (!plain.loss.looks_at_label()) config.options.validation.metric = "loss";
  Reader reader(map);
  config.options.describe(reader);
  return config;
}

// Where no root is given, patterns start in the file that they stand in, not wherever the program runs.
std::filesystem::path folder_of_patterns(const Layers& layers) {
  for (auto layer = layers.layers.rbegin(); layer != layers.layers.rend(); ++layer)
    for (const Assignment& assignment : layer->assignments)
      if (assignment.key == "data.images" || assignment.key == "data.cases" || assignment.key == "data.csv")
        return assignment.folder;
  return {};
}

std::vector<std::pair<std::string, Tree>> values_of(Options options) {
  Writer writer;
  options.describe(writer);
  return writer.values();
}

}  // namespace

Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  Layers layers;
  add_file(layers, file);
  add_overrides(layers, overrides, std::filesystem::absolute(file).parent_path());
  Config config = resolve(layers);
  config.file = file;
  std::string& root = config.options.data.root;
  if (root.empty()) root = folder_of_patterns(layers).lexically_normal().string();
  return config;
}

Config parse_config(const std::string& yaml, const std::filesystem::path& folder,
                    const std::vector<std::string>& overrides) {
  Layers layers;
  add_text(layers, yaml, folder);
  add_overrides(layers, overrides, folder);
  return resolve(layers);
}

std::string to_yaml(const Options& options) {
  return yaml_text(values_of(options));
}

std::vector<OptionDifference> differences(const Options& before, const Options& after) {
  const auto old_values = values_of(before), new_values = values_of(after);
  std::vector<OptionDifference> result;
  for (size_t i = 0; i < old_values.size(); ++i)
    if (!(old_values[i].second == new_values[i].second))
      result.push_back({old_values[i].first, tree_text(old_values[i].second), tree_text(new_values[i].second)});
  return result;
}

}  // namespace vox
