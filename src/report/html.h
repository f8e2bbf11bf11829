// report.html: one self-contained file that shows a run, or several side by side. Plots are inline SVG and stand
// without JavaScript; a small script adds the read-out under the pointer.
#pragma once

#include <string>
#include <vector>

#include "report/metrics_csv.h"
#include "report/run_folder.h"
#include "report/slices.h"

namespace vox {

struct ConfigurationRow {  // value is what the run used
  std::string key, value, default_value;
};

struct ReportRun {
  std::string name;
  RunRecord record;
  MetricsTable metrics;
  std::string configuration;                  // the text of config.yaml
  std::vector<ConfigurationRow> differences;  // from the defaults
  std::vector<std::string> warnings;          // lines of log.txt
  std::vector<SliceFiles> slices;
  bool trained = true;        // false: a folder with nothing but a profile or a search for settings
  std::string profile, tune;  // HTML of what those commands left; empty where they did not run
};

ReportRun load_report_run(const RunFolder& run, const std::vector<ConfigurationRow>& differences);
std::string render_report(const std::vector<ReportRun>& runs);

// What the trainer calls at the end of a run: writes report.html into its folder.
void write_report(const RunFolder& run, const std::vector<ConfigurationRow>& differences);

}  // namespace vox
