#include "cli/evaluate_output.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "cli/json_text.h"

namespace vox::cli {
namespace {

nlohmann::json to_json(const MetricEntry& metric, const Scores& scores) {
  nlohmann::json json = scores.values;
  json[metric.group] = scores.classes;
  return json;
}

using Values = std::map<std::string, double>;
using Rows = std::vector<std::pair<std::string, const Values*>>;

std::string padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : text + std::string(width - text.size(), ' ');
}

void print_rows(const std::string& heading, const Rows& rows, const std::vector<std::string>& columns) {
  size_t width = heading.size() + 1;
  for (const auto& [name, values] : rows) width = std::max(width, name.size() + 1);
  const auto cell = [](const std::string& text, const std::string& column) {
    return "  " + padded(text, std::max<size_t>(column.size(), 9));
  };
  std::cout << padded(heading, width);
  for (const std::string& column : columns) std::cout << cell(column, column);
  std::cout << '\n';
  for (const auto& [name, values] : rows) {
    std::cout << padded(name, width);
    for (const std::string& column : columns) {
      const auto found = values->find(column);
      std::cout << cell(found == values->end() ? "" : format_number(found->second, 4), column);
    }
    std::cout << '\n';
  }
}

// Of the mean over cases: classes, structures, dimensions, thresholds. What both sides were stays in the JSON document.
void print_groups(const MetricEntry& metric, const Scores& mean) {
  std::set<std::string> found;
  Rows rows;
  for (const auto& [label, values] : mean.classes) {
    rows.emplace_back(label, &values);
    for (const auto& [name, value] : values)
      if (!name.ends_with("_prediction") && !name.ends_with("_reference")) found.insert(name);
  }
  std::vector<std::string> columns;
  for (const ScoreInfo& score : metric.scores)
    if (found.erase(score.name) > 0) columns.push_back(score.name);
  columns.insert(columns.end(), found.begin(), found.end());
  std::cout << '\n';
  print_rows(metric.group, rows, columns);
}

}  // namespace

void print_json(const MetricEntry& metric, const Results& results, const Scores& mean) {
  nlohmann::ordered_json json{{"cases", nlohmann::json::object()}, {"mean", to_json(metric, mean)}};
  for (const auto& [id, scores] : results.cases) json["cases"][id] = to_json(metric, scores);
  if (!results.failures.empty()) json["failures"] = results.failures;
  std::cout << json_text(json);
}

void print_table(const MetricEntry& metric, const Results& results, const Scores& mean) {
  Rows rows;
  for (const auto& [id, scores] : results.cases) rows.emplace_back(id, &scores.values);
  rows.emplace_back("mean", &mean.values);
  std::vector<std::string> columns;
  for (const ScoreInfo& score : metric.scores) columns.push_back(score.name);
  print_rows("case", rows, columns);
  if (mean.classes.size() > 1) print_groups(metric, mean);
  std::cout << '\n' << metric.help << "; `voxloom list metrics` says what each score is\n";
}

void write_csv(const std::string& path, const MetricEntry& metric, const Results& results) {
  std::map<std::string, Values> rows;
  std::set<std::string> columns;
  for (const auto& [id, scores] : results.cases) {
    Values& row = rows[id];
    row = scores.values;
    for (const auto& [label, values] : scores.classes)
      for (const auto& [name, value] : values) row[label + "." + name] = value;
    for (const auto& [name, value] : row) columns.insert(name);
  }
  std::vector<std::string> in_order;  // as in the table, then the others
  for (const ScoreInfo& score : metric.scores)
    if (columns.erase(score.name) > 0) in_order.push_back(score.name);
  in_order.insert(in_order.end(), columns.begin(), columns.end());
  std::string text = concat("case,", join(in_order, ","), "\n");
  for (const auto& [id, row] : rows) {
    text += id.find(',') == std::string::npos ? id : concat('"', id, '"');
    for (const std::string& column : in_order) text += "," + (row.count(column) ? shortest(row.at(column)) : "");
    text += "\n";
  }
  write_file(path, text);
}

}  // namespace vox::cli
