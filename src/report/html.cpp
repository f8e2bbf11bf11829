#include "report/html.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "report/html_measured.h"
#include "report/html_sections.h"
#include "report/html_text.h"

namespace vox {
namespace {

constexpr size_t kMostWarnings = 200;

// Each warning once, with how often it came.
std::vector<std::string> warnings_of(const fs::path& log) {
  if (!fs::exists(log)) return {};
  std::vector<std::pair<std::string, int64_t>> found;
  for (const std::string& line : split(read_file(log), '\n')) {
    const size_t place = line.find(" warning: ");
    if (place == std::string::npos) continue;
    const std::string text = line.substr(place + 10);
    const auto known = std::find_if(found.begin(), found.end(), [&](const auto& other) { return other.first == text; });
    if (known != found.end()) {
      ++known->second;
    } else if (found.size() < kMostWarnings) {
      found.emplace_back(text, 1);
    }
  }
  std::vector<std::string> warnings;
  for (const auto& [text, times] : found) warnings.push_back(times == 1 ? text : concat(text, " (", times, " times)"));
  return warnings;
}

// An error names the file.
std::string card_of(const fs::path& file, std::string (*card)(const std::string&)) {
  if (!fs::exists(file)) return "";
  try {
    return card(read_file(file));
  } catch (const Error& error) {
    throw Error(concat(file.string(), ": ", error.what()));
  }
}

std::string page_title(const std::vector<ReportRun>& runs) {
  std::vector<std::string> names;
  for (const ReportRun& run : runs) names.push_back(run.name);
  return join(names, " / ");
}

}  // namespace

ReportRun load_report_run(const RunFolder& run, const std::vector<ConfigurationRow>& differences) {
  ReportRun loaded;
  loaded.name = run.name();
  loaded.profile = card_of(run.profile(), profile_card);
  loaded.tune = card_of(run.tune(), tune_card);
  loaded.trained = RunFolder::is_run(run.path());
  if (!loaded.trained) return loaded;
  loaded.record = read_record(run);
  // A run that still says "running" long after its process is gone was killed; the report says so too.
  const std::optional<RunStatus> status = read_status(run);
  if (loaded.record.state == RunState::kRunning && !is_alive(loaded.record, status)) {
    loaded.record.state = RunState::kFailed;
    loaded.record.reason = "killed";
    close_killed(loaded.record, status);
  }
  if (fs::exists(run.metrics())) loaded.metrics = read_metrics(run.metrics());
  if (fs::exists(run.config())) loaded.configuration = read_file(run.config());
  loaded.differences = differences;
  loaded.warnings = warnings_of(run.log());
  loaded.slices = find_slices(run);
  return loaded;
}

std::string render_report(const std::vector<ReportRun>& runs) {
  VOX_CHECK(!runs.empty(), "a report needs at least one run");
  std::string page = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  page += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
  page += "<link rel=\"icon\" href=\"data:,\">\n";  // else a browser asks the server for one
  page += concat("<title>", escape_html(page_title(runs)), " - Voxloom</title>\n<style>", report_style(),
                 "</style></head>\n");
  page += "<body><main>\n";
  page += header_section(runs);
  const bool trained = std::any_of(runs.begin(), runs.end(), [](const ReportRun& run) { return run.trained; });
  if (trained) page += figures_section(runs) + plots_section(runs) + time_section(runs);
  page += measured_section(runs);
  if (trained)
    page += slices_section(runs) + warnings_section(runs) + configuration_section(runs) + processes_section(runs);
  page += concat("</main>\n<script>", report_script(), "</script>\n</body></html>\n");
  return page;
}

void write_report(const RunFolder& run, const std::vector<ConfigurationRow>& differences) {
  write_file(run.report(), render_report({load_report_run(run, differences)}));
}

}  // namespace vox
