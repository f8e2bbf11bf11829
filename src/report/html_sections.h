// The parts of the report, each as HTML; "" where a run has nothing for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/html.h"

namespace vox {

std::string header_section(const std::vector<ReportRun>& runs);
std::string figures_section(const std::vector<ReportRun>& runs);  // tiles of one run, a table of several
std::string plots_section(const std::vector<ReportRun>& runs);
std::string time_section(const std::vector<ReportRun>& runs);      // where the time of a step goes
std::string measured_section(const std::vector<ReportRun>& runs);  // what `profile` and `tune` found
std::string slices_section(const std::vector<ReportRun>& runs);
std::string configuration_section(const std::vector<ReportRun>& runs);
std::string warnings_section(const std::vector<ReportRun>& runs);
std::string processes_section(const std::vector<ReportRun>& runs);

// Mean of a column over the training rows, the first (warm-up) left out where there are more.
std::optional<double> mean_of_training(const MetricsTable& metrics, const std::string& column);

}  // namespace vox
