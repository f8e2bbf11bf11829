// voxloom list networks|losses|...: what this build knows, from the registries themselves. A new listing is one
// function that returns a table and one line in all_listings(). The --markdown form is docs/reference/<what>.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "augment/augment.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/json_text.h"
#include "config/config.h"
#include "io/format.h"
#include "losses/loss.h"
#include "metrics/metric.h"
#include "nets/registry.h"
#include "patch/sampler.h"
#include "post/post.h"
#include "targets/target.h"
#include "volume/preprocess.h"

namespace vox::cli {
namespace {

using Row = std::vector<std::string>;
struct Table {
  Row columns;
  std::vector<Row> rows;
  std::string heading{};  // of a part of a page; empty: the page has one part
  std::string intro{};
  bool in_json = true;
};
struct Listing {
  const char *what, *help;
  std::vector<Table> (*tables)();
  const char* intro = "";  // of the page
};

constexpr const char* kAboutOptions = R"(
A recipe is a YAML file with these sections; what it leaves out keeps its default. On the command line `key=value`
overrides it: lists are `model.filters=32,64,128` or `[32,64,128]`, lists of groups are YAML, as in
`loss.terms="[{name: dice}, {name: bce, weight: 0.5}]"`. Sizes are z,y,x; one number is a cube.

`extends: other.yaml` (or a list of files) starts from another recipe. `${VAR}` in a value is the environment variable.
Paths are relative to the file they stand in; on the command line to the current folder where they exist there, else to
the recipe. Files of `data` are named below `data.root`, without it from the recipe that names them. An unknown key is an
error; a repeated one takes its last value, with a warning.
)";

constexpr const char* kAboutPreprocess = R"(
Steps of `data.preprocess`, done in the order of the recipe to each volume once, as in
`data.preprocess: [{name: clip, min: 0, max: 2500, channels: [0]}, {name: distance, limit: 40, channels: [1, 2]}]`.
)";

constexpr const char* kAboutLosses = R"(
Terms of `loss.terms`, as in `loss.terms: [{name: dice, background: true}, {name: bce, weight: 0.5, pos_weight: 3}]`.
Below are the options of single losses; every term also has those of [options](options.md#loss). A loss without a
table has none of its own. [Topology and skeletons](../losses.md) has more about some of them.
)";

constexpr const char* kAboutMetrics = R"(
Of `voxloom evaluate --task TASK --prediction PATH --reference PATH`: two volumes, or two folders whose files are matched
by name, whatever their formats. Voxels of the `--ignore-label` in the reference count nowhere (`surface`: 2 unless said).
The first case that cannot be scored ends it; with `--keep-going` the others are scored, each failure is a sentence, and
the status is 1. `--subset` scores what was predicted and misses nothing else. `--csv FILE` has a row for each case: the
scores below, then those of each class, structure, dimension or threshold as `label.name`; `--json` has the same.
)";

constexpr const char* kAboutTargets = R"(
A term names one as its `target`. One with options stands in `loss.targets` under a name of its own, as in
`loss.targets: [{name: near, kind: affinity, offsets: [[0, 0, 1]]}]` and `loss.terms: [{name: bce, target: near}]`.
At the coarser outputs of deep supervision classes are taken from the nearest voxel, values are means over a cell.
)";

constexpr const char* kAboutPostprocess = R"(
Steps of `inference.postprocess`, done in this order to the prediction of one class, as in
`inference.postprocess: [{name: threshold, level: 0.3}, {name: remove_small, min_voxels: 500}, {name: fill_holes}]`; alone on
a file by `voxloom convert IN OUT --postprocess "[...]"`. `threshold` and `hysteresis` cut probabilities and come first,
`watershed` and `mutex_watershed` number objects (uint32) and come last. `predict --threshold` is the level of a chain's
`threshold`. Of a file, real values are probabilities and of whole numbers everything but 0 is foreground; the result
holds 0 and 1. A step without a table has no options.
)";

template <class Entry>
std::vector<Table> names_and_help(const std::vector<Entry>& entries) {
  Table table{{"name", "help"}, {}};
  for (const Entry& entry : entries) table.rows.push_back({entry.name, entry.help});
  return {table};
}

std::vector<Table> formats() {
  Table table{{"name", "help", "suffixes", "written_codecs"}, {}};
  for (const FormatEntry& entry : all_formats()) {
    const std::string codecs = entry.write ? join(entry.codecs, ", ") : "read only";
    table.rows.push_back({entry.name, entry.help, join(entry.suffixes, ", "), codecs});
  }
  return {table};
}

std::vector<Table> options() {
  std::vector<Table> sections;
  for (const OptionRow& row : option_rows()) {
    const std::string section = row.key.substr(0, row.key.find('.'));
    if (sections.empty() || sections.back().heading != section)
      sections.push_back({{"key", "type", "default", "range", "unit", "meaning"}, {}, section});
    sections.back().rows.push_back({row.key, row.type, row.default_value, row.range, row.unit, row.meaning});
  }
  return sections;
}

std::vector<Table> aliases() {
  Table mapped{{"alias", "canonical", "note"}, {}, "Names from the field", "Each is mapped, and said once."};
  Table ignored{mapped.columns, {}, "Accepted without effect"};
  ignored.intro = "In the sections system, model, data and training, and outside of any.";
  for (const AliasRow& row : alias_rows())
    (row.canonical.empty() ? ignored : mapped).rows.push_back({row.alias, row.canonical, row.note});
  return {mapped, ignored};
}

std::vector<Table> metrics() {
  Table table{{"task", "score", "better", "help"}, {}};
  for (const MetricEntry& entry : all_metrics())
    for (const ScoreInfo& score : entry.scores)
      table.rows.push_back(
          {entry.name, score.name, score.better == ScoreInfo::Better::kHigher ? "higher" : "lower", score.help});
  return {table};
}

Table table_of_step(const std::string& heading, const std::string& help, const std::string& prefix,
                    const std::vector<OptionRow>& rows) {
  Table table{{"option", "type", "default", "range", "unit", "meaning"}, {}, heading, help + "."};
  for (const OptionRow& row : rows)
    table.rows.push_back({prefix + row.key, row.type, row.default_value, row.range, row.unit, row.meaning});
  return table;
}

std::vector<Table> preprocess_steps() {
  std::vector<Table> tables;
  for (const PreprocessEntry& entry : all_preprocess_steps())
    tables.push_back(table_of_step(entry.name, entry.help, entry.name + ".", entry.options()));
  tables.push_back(table_of_step("every step", "Beside the options of its own", "", options_of_every_step()));
  return tables;
}

// The names first, which is all that JSON has; then each entry's options.
template <class Entry>
std::vector<Table> names_and_options(const std::vector<Entry>& entries) {
  std::vector<Table> tables = names_and_help(entries);
  for (const Entry& entry : entries) {
    const std::vector<OptionRow> rows = entry.options();
    if (rows.empty()) continue;
    tables.push_back(table_of_step(entry.name, entry.help, "", rows));
    tables.back().in_json = false;
  }
  return tables;
}

std::vector<Table> targets() {
  std::vector<Table> tables = names_and_options(all_targets());
  tables[0].rows.insert(tables[0].rows.begin(),
                        {"label", "The label itself, or the values of a regression: what a term without target has"});
  return tables;
}

const std::vector<Listing>& all_listings() {
  static const std::vector<Listing> listings{
      {"networks", "Networks", [] { return names_and_help(all_networks()); }},
      {"losses", "Losses", [] { return names_and_options(all_losses()); }, kAboutLosses},
      {"metrics", "Scores of each task", metrics, kAboutMetrics},
      {"formats", "File formats of volumes", formats},
      {"preprocess", "Steps applied to volumes before training", preprocess_steps, kAboutPreprocess},
      {"transforms", "Transforms of augmentation", [] { return names_and_help(all_transforms()); }},
      {"targets", "What a loss compares the prediction with", targets, kAboutTargets},
      {"postprocess", "Steps applied to predictions", [] { return names_and_options(all_post_steps()); },
       kAboutPostprocess},
      {"samplers", "Ways to choose where patches are cut", [] { return names_and_help(all_samplers()); }},
      {"commands", "Commands of this program", [] { return names_and_help(all_commands()); }},
      {"options", "Options of a recipe", options, kAboutOptions},
      {"aliases", "Options by the names other trainers give them", aliases},
  };
  return listings;
}

std::vector<Table> listings_themselves() {
  Table table{{"name", "help"}, {}};
  for (const Listing& listing : all_listings()) table.rows.push_back({listing.what, listing.help});
  return {table};
}

const Listing& find_listing(const std::string& what) {
  static const Listing overview{"lists", "What can be listed", listings_themselves};
  if (what.empty()) return overview;
  const auto& all = all_listings();
  return *std::find_if(all.begin(), all.end(), [&](const Listing& listing) { return listing.what == what; });
}

void print_json(const Listing& listing) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Table& table : listing.tables()) {
    if (!table.in_json) continue;
    for (const Row& row : table.rows) {
      nlohmann::ordered_json object;
      for (size_t i = 0; i < row.size(); ++i) object[table.columns[i]] = row[i];
      rows.push_back(std::move(object));
    }
  }
  std::cout << json_text(rows);
}

std::string markdown_cell(const std::string& text, bool is_code) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return is_code && !text.empty() ? "`" + escaped + "`" : escaped;
}

void print_markdown(const Table& table) {
  if (!table.heading.empty()) std::cout << "\n## " << table.heading << '\n';
  if (!table.intro.empty()) std::cout << '\n' << table.intro << '\n';
  std::cout << "\n| " << join(table.columns, " | ") << " |\n|";
  for (size_t i = 0; i < table.columns.size(); ++i) std::cout << "---|";
  std::cout << '\n';
  for (const Row& row : table.rows) {
    std::cout << '|';
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string& column = table.columns[i];
      const bool is_code = i == 0 || column == "default" || column == "canonical";
      std::cout << ' ' << markdown_cell(row[i], is_code) << " |";
    }
    std::cout << '\n';
  }
}

void print_page(const Listing& listing) {
  std::cout << "# " << listing.help << "\n\nWritten by `voxloom list " << listing.what << " --markdown`.\n"
            << listing.intro;
  for (const Table& table : listing.tables()) print_markdown(table);
  if (std::string(listing.what) == "options")  // one page holds every name a recipe may use
    for (const Table& table : aliases()) print_markdown(table);
}

void print_plain(const Listing& listing) {
  const std::vector<Table> tables = listing.tables();
  for (const Table& table : tables) {
    std::vector<size_t> widths(table.columns.size());
    for (const Row& row : table.rows)
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    if (!table.heading.empty()) std::cout << (&table == &tables.front() ? "" : "\n") << table.heading << '\n';
    for (const Row& row : table.rows) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i)
        if (widths[i] > 0) line += (line.empty() ? "" : "  ") + row[i] + std::string(widths[i] - row[i].size(), ' ');
      std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
    }
  }
}

struct ListArguments {
  std::string what;
  bool json = false, markdown = false;
};

void run_list(const ListArguments& arguments) {
  const Listing& listing = find_listing(arguments.what);
  if (arguments.json)
    print_json(listing);
  else if (arguments.markdown)
    print_page(listing);
  else
    print_plain(listing);
}

void define(CLI::App& command) {
  auto arguments = std::make_shared<ListArguments>();
  std::vector<std::string> names;
  for (const Listing& listing : all_listings()) names.push_back(listing.what);
  command.add_option("what", arguments->what, "What to list; absent: what there is to list")
      ->check(CLI::IsMember(names));
  auto* json = command.add_flag("--json", arguments->json, "One JSON list on standard output");
  command.add_flag("--markdown", arguments->markdown, "The page of docs/reference")->excludes(json);
  command.callback([arguments] { run_list(*arguments); });
}

}  // namespace

CommandEntry list_command() {
  return {"list", "What this build knows: formats, transforms, options, ...", define};
}

}  // namespace vox::cli
