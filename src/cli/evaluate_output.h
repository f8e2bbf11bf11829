// What `voxloom evaluate` found, as a table, a JSON document or a CSV file.
#pragma once

#include <map>
#include <string>

#include "metrics/metric.h"

namespace vox::cli {

struct Results {
  std::map<std::string, Scores> cases;
  std::map<std::string, std::string> failures;  // id -> sentence
};

void print_json(const MetricEntry& metric, const Results& results, const Scores& mean);
void print_table(const MetricEntry& metric, const Results& results, const Scores& mean);
// A row for each case; what belongs to a class, structure, dimension or threshold has the column label.name.
void write_csv(const std::string& path, const MetricEntry& metric, const Results& results);

}  // namespace vox::cli
