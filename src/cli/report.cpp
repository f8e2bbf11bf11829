// voxloom report: one self-contained HTML file of a run, or of several side by side.
#include "cli/report.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "config/config.h"
#include "report/html.h"
#include "report/run_folder.h"

namespace vox::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string output;
};

std::vector<ConfigurationRow> rows_of(const RunFolder& run) {
  if (!fs::exists(run.config())) return {};
  std::vector<ConfigurationRow> rows;
  for (const OptionDifference& difference : differences(Options{}, load_config(run.config()).options))
    rows.push_back({difference.key, difference.after, difference.before});
  return rows;
}

// Folders of one name in different places go by their paths.
void name_apart(std::vector<ReportRun>& runs, const std::vector<std::string>& paths) {
  std::map<std::string, int> times;
  for (const ReportRun& run : runs) ++times[run.name];
  for (size_t i = 0; i < runs.size(); ++i)
    if (times[runs[i].name] > 1) runs[i].name = fs::path(paths[i]).lexically_normal().string();
}

void run_report(const ReportOptions& options) {
  std::vector<ReportRun> runs;
  for (const std::string& path : options.runs) {
    const RunFolder run = RunFolder::open_measured(path);
    runs.push_back(load_report_run(run, rows_of(run)));
  }
  name_apart(runs, options.runs);
  fs::path output = options.output;
  if (output.empty())
    output = runs.size() == 1 ? RunFolder::open_measured(options.runs[0]).report() : fs::path("report.html");
  write_file(output, render_report(runs));
  std::cout << output.string() << '\n';
}

void define(CLI::App& command) {
  auto options = std::make_shared<ReportOptions>();
  command.add_option("run", options->runs, "Run folders")->required();
  command.add_option("--output", options->output,
                     "The file to write; default: report.html in the run's folder, or here for several runs");
  command.callback([options] { run_report(*options); });
}

}  // namespace

fs::path write_folder_report(const fs::path& folder) {
  const RunFolder run = RunFolder::open_measured(folder);
  write_report(run, rows_of(run));
  return run.report();
}

void leave_in_folder(const fs::path& folder, const std::string& file, const std::string& document) {
  make_folders(folder);
  write_file(folder / file, document);
  std::cerr << "in the report: " << write_folder_report(folder).string() << '\n';
}

CommandEntry report_command() {
  return {"report", "Write the HTML report of a run, or of several side by side.", define};
}

}  // namespace vox::cli
