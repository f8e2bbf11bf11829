#include "volume/manifest.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/format.h"
#include "volume/csv.h"
#include "volume/glob.h"

namespace vox {
namespace {

using Fields = std::function<std::string(const std::string& name)>;  // the value of {name} for one case

// `{name}` replaced by its value.
std::string fill_template(const std::string& pattern, const Fields& fields) {
  std::string out;
  for (size_t at = 0; at < pattern.size();) {
    const size_t close = pattern[at] == '{' ? pattern.find('}', at) : std::string::npos;
    if (close == std::string::npos) {
      out += pattern[at++];
      continue;
    }
    out += fields(pattern.substr(at + 1, close - at - 1));
    at = close + 1;
  }
  return out;
}

bool is_template(const std::string& pattern) {
  const size_t open = pattern.find('{');
  return open != std::string::npos && pattern.find('}', open) != std::string::npos;
}

bool is_volume_folder(const fs::path& folder) {  // a folder that is one volume, such as a Zarr array
  return std::any_of(all_formats().begin(), all_formats().end(),
                     [&](const FormatEntry& format) { return format.matches({}, folder); });
}

std::vector<FileMatch> files_of(const fs::path& root, const std::string& pattern) {
  const fs::path path = root / pattern;
  if (fs::is_directory(path) && !is_volume_folder(path)) return files_of_folder(path);
  return match_files(root, pattern);
}

// The file of one role for each case, by template, or by the same id in a glob or a folder.
class PartnerFinder {
 public:
  PartnerFinder(const DataOptions& data, std::string pattern, std::string option)
      : root_(data.root), pattern_(std::move(pattern)), option_(std::move(option)), skip_(data.on_bad_case == "skip") {
    if (is_template(pattern_)) return;
    for (const FileMatch& match : files_of(root_, pattern_)) by_id_.emplace(match.id, match.path);
  }

  std::string find(const std::string& id, const Fields& fields) const {
    std::string name;
    if (is_template(pattern_)) {
      const std::string filled = fill_template(pattern_, fields);
      name = (fs::path(root_) / filled).lexically_normal().string();
      if (!volume_exists(name) && is_pattern(filled)) name = single_match(id, filled);
    } else if (const auto found = by_id_.find(id); found != by_id_.end()) {
      name = found->second;
    }
    VOX_CHECK(skip_ || !name.empty(), "case ", id, ": ", option_, " \"", pattern_, "\" has no file for it among the ",
              by_id_.size(), " found in ", fixed_folder(root_, pattern_ + "/x").string());
    VOX_CHECK(skip_ || volume_exists(name), "case ", id, ": ", option_, " is missing: there is no file ", name);
    return name.empty() ? (fs::path(root_) / pattern_).string() + " (for " + id + ")" : name;
  }

 private:
  std::string single_match(const std::string& id, const std::string& pattern) const {
    const std::vector<FileMatch> matches = match_files(root_, pattern);
    VOX_CHECK(matches.size() <= 1, "case ", id, ": ", option_, " matches ", matches.size(), " files, ", matches[0].path,
              " and ", matches[1].path, "; expected one");
    return matches.empty() ? (fs::path(root_) / pattern).lexically_normal().string() : matches[0].path;
  }

  std::string root_, pattern_, option_;
  bool skip_;
  std::map<std::string, std::string> by_id_;
};

struct Partners {  // finders of every role but those that the cases came from
  std::vector<PartnerFinder> images;
  std::vector<PartnerFinder> label, mask;  // none or one

  Partners(const DataOptions& data, size_t first_image) {
    for (size_t i = first_image; i < data.images.size(); ++i) images.emplace_back(data, data.images[i], "data.images");
    if (!data.label.empty()) label.emplace_back(data, data.label, "data.label");
    if (!data.mask.empty()) mask.emplace_back(data, data.mask, "data.mask");
  }

  void add_to(Case& item, const Fields& fields) const {
    for (const PartnerFinder& finder : images) item.images.push_back(finder.find(item.id, fields));
    if (!label.empty()) item.label = label[0].find(item.id, fields);
    if (!mask.empty()) item.mask = mask[0].find(item.id, fields);
  }
};

[[noreturn]] void fail_empty(const DataOptions& data) {
  const std::string& pattern = data.images.front();
  const fs::path folder = fixed_folder(data.root, is_pattern(pattern) ? pattern : pattern + "/x");
  VOX_CHECK(fs::is_directory(folder), "the dataset is empty: data.images \"", pattern, "\" looks in ", folder.string(),
            ", and there is no such folder; is data.root right?");
  std::string example;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); !name.starts_with('.'))
      example = std::max(example, name);
  throw Error(concat("the dataset is empty: data.images \"", pattern, "\" matches no file in ", folder.string(),
                     example.empty() ? ", which is empty" : concat(", which holds for example ", example)));
}

std::vector<Case> cases_from_patterns(const DataOptions& data) {
  const std::string& first = data.images.front();
  const std::vector<FileMatch> found = files_of(data.root, first);
  if (found.empty()) fail_empty(data);
  const Partners partners(data, 1);
  std::vector<Case> cases;
  for (const FileMatch& match : found) {
    Case item{.id = match.id, .group = match.id, .images = {match.path}, .label = "", .mask = "", .split = ""};
    partners.add_to(item, [&](const std::string& name) {
      VOX_CHECK(name == "id", "a pattern of data holds {", name, "}, which needs a table: set data.csv");
      return match.id;
    });
    cases.push_back(std::move(item));
  }
  return cases;
}

// Columns named image, label and mask hold paths where no pattern is given.
void add_columns(Case& item, const DataOptions& data, const Table& table, const std::vector<std::string>& row) {
  const auto path_of = [&](const std::string& column) {
    const int64_t at = table.column(column);
    const std::string text = at < 0 ? "" : row[static_cast<size_t>(at)];
    return text.empty() ? "" : (fs::path(data.root) / text).lexically_normal().string();
  };
  if (data.images.empty()) item.images = {path_of("image")};
  if (data.images.empty() && data.label.empty()) item.label = path_of("label");
  if (data.images.empty() && data.mask.empty()) item.mask = path_of("mask");
}

// A recipe names its table from where it stands; with data.root= another copy of the data is meant, table and all.
fs::path table_of(const DataOptions& data) {
  const fs::path named = fs::path(data.root) / data.csv, beside_data = fs::path(data.root) / named.filename();
  if (fs::exists(named)) return named;
  VOX_CHECK(fs::exists(beside_data), "data.csv: there is no table ", named.filename().string(), " in ", data.root,
            fs::is_directory(data.root) ? "" : ", which is no folder",
            named == beside_data ? "" : concat(", nor is there ", named.string()), "; is data.root right?");
  return beside_data;
}

std::vector<Case> cases_from_table(const DataOptions& data) {
  const Table table = read_table(table_of(data));
  const auto id_column = static_cast<size_t>(table.require_column(data.id_column, "data.id_column"));
  const int64_t group_column =
      data.group_column.empty() ? -1 : table.require_column(data.group_column, "data.group_column");
  const int64_t split_column =
      data.split == "column" ? table.require_column(data.split_column, "data.split_column") : -1;
  if (data.images.empty()) table.require_column("image", "an empty data.images");
  const Partners partners(data, 0);
  std::vector<Case> cases;
  for (const std::vector<std::string>& row : table.rows) {
    Case item;
    item.id = row[id_column];
    item.group = group_column < 0 ? item.id : row[static_cast<size_t>(group_column)];
    if (split_column >= 0) item.split = row[static_cast<size_t>(split_column)];
    add_columns(item, data, table, row);
    partners.add_to(item, [&](const std::string& name) {
      const int64_t column = table.column(name);
      if (column < 0 && name == "id") return item.id;
      return row[static_cast<size_t>(table.require_column(name, "a pattern of data"))];
    });
    cases.push_back(std::move(item));
  }
  VOX_CHECK(!cases.empty(), "the dataset is empty: ", table.file.string(), " has no rows below its column names");
  return cases;
}

std::vector<Case> cases_from_list(const DataOptions& data) {
  const auto absolute = [&](const std::string& name) {
    return name.empty() ? name : (fs::path(data.root) / name).lexically_normal().string();
  };
  std::vector<Case> cases;
  for (const CaseEntry& entry : data.cases) {
    Case item{entry.id, entry.group, {}, absolute(entry.label), absolute(entry.mask), entry.split, entry.fold};
    VOX_CHECK(!entry.images.empty(), "data.cases: entry ", cases.size(), " (", entry.id, ") names no image");
    for (const std::string& image : entry.images) item.images.push_back(absolute(image));
    if (item.id.empty()) item.id = volume_stem(item.images.front());
    if (item.group.empty()) item.group = item.id;
    std::vector<std::string> files = item.images;
    for (const std::string& name : {item.label, item.mask})
      if (!name.empty()) files.push_back(name);
    for (const std::string& name : files)
      VOX_CHECK(data.on_bad_case == "skip" || volume_exists(name), "case ", item.id, ": there is no file ", name);
    cases.push_back(std::move(item));
  }
  return cases;
}

void require_unique_ids(const std::vector<Case>& cases) {  // cases are sorted by id
  for (size_t i = 1; i < cases.size(); ++i)
    VOX_CHECK(cases[i - 1].id != cases[i].id, "two cases have the id \"", cases[i].id,
              "\": ", cases[i - 1].images.front(), " and ", cases[i].images.front(),
              "; rename one, or use a pattern whose {id} tells them apart");
}

}  // namespace

std::vector<Case> find_cases(const DataOptions& data) {
  VOX_CHECK(!data.cases.empty() || !data.csv.empty() || !data.images.empty(),
            "the dataset is empty: set data.images (a pattern such as \"images/*.tif\"), data.csv or data.cases");
  VOX_CHECK(data.group_column.empty() || !data.csv.empty(), "data.group_column is \"", data.group_column,
            "\", but there is no table to have it; set data.csv, or give each of data.cases a group");
  VOX_CHECK(data.split != "column" || !data.csv.empty() || !data.cases.empty(),
            "data.split is column, but there is no table; set data.csv, or another split");
  std::vector<Case> cases = !data.cases.empty() ? cases_from_list(data)
                            : !data.csv.empty() ? cases_from_table(data)
                                                : cases_from_patterns(data);
  std::stable_sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) { return natural_less(a.id, b.id); });
  require_unique_ids(cases);
  return cases;
}

}  // namespace vox
