// Tables of the report: configuration, warnings, and who worked on the run.
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "report/html_sections.h"
#include "report/html_text.h"

namespace vox {
namespace {

std::string cell(const std::string& text) {
  return concat("<td><code>", escape_html(text), "</code></td>");
}

std::string whole_cell(const std::string& text) {  // a name, or a value that is short: not broken within a word
  return concat("<td class=\"whole\"><code>", escape_html(text), "</code></td>");
}

std::string differences_of_one(const ReportRun& run) {
  if (run.differences.empty()) return "<p class=\"soft\">Every option has its default.</p>";
  std::string table = "<div class=\"scroll\"><table><tr><th>option</th><th>this run</th><th>default</th></tr>";
  for (const ConfigurationRow& row : run.differences)
    table += concat("<tr>", whole_cell(row.key), cell(row.value), whole_cell(row.default_value), "</tr>");
  return table + "</table></div>";
}

// Options in which the runs differ from each other; a run that does not name one has its default.
std::string differences_between(const std::vector<ReportRun>& runs) {
  std::map<std::string, std::string> defaults;
  std::vector<std::map<std::string, std::string>> values(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const ConfigurationRow& row : runs[i].differences) {
      defaults[row.key] = row.default_value;
      values[i][row.key] = row.value;
    }
  }
  std::string rows;
  for (const auto& [key, default_value] : defaults) {
    std::set<std::string> distinct;
    std::string cells;
    for (const auto& of_run : values) {
      const std::string& value = of_run.count(key) ? of_run.at(key) : default_value;
      distinct.insert(value);
      cells += cell(value);
    }
    if (distinct.size() > 1) rows += concat("<tr>", whole_cell(key), cells, "</tr>");
  }
  if (rows.empty()) return "<p class=\"soft\">The runs have the same configuration.</p>";
  std::string head = "<tr><th>option</th>";
  for (const ReportRun& run : runs) head += concat("<th>", escape_html(run.name), "</th>");
  return concat("<div class=\"scroll\"><table>", head, "</tr>", rows, "</table></div>");
}

std::string whole_configuration(const ReportRun& run, const std::string& title) {
  if (run.configuration.empty()) return "";
  return concat("<details><summary>", escape_html(title), "</summary><pre>", escape_html(run.configuration),
                "</pre></details>");
}

std::string facts_table(const ReportRun& run) {
  const RunRecord& record = run.record;
  std::vector<std::string> libraries;
  for (const auto& [name, version] : record.libraries) libraries.push_back(name + " " + version);
  std::string rows;
  const auto row = [&](const char* name, const std::string& value) {
    if (!value.empty()) rows += concat("<tr><th>", name, "</th><td>", escape_html(value), "</td></tr>");
  };
  row("command", record.command);
  row("machine", record.machine);
  row("commit", record.commit);
  row("libraries", join(libraries, ", "));
  row("created", record.created);
  row("last checkpoint", record.last_checkpoint);
  return concat("<div class=\"scroll\"><table>", rows, "</table></div>");
}

std::string process_table(const ReportRun& run) {
  std::ostringstream out;
  out << "<div class=\"scroll\"><table><tr><th>started</th><th>ended</th><th class=\"n\">first step</th>"
         "<th class=\"n\">last step</th><th>how it ended</th><th>where</th></tr>";
  for (const RunProcess& process : run.record.processes) {
    out << "<tr><td class=\"when\">" << escape_html(process.started) << "</td><td class=\"when\">"
        << escape_html(process.ended) << "</td><td class=\"n\">" << process.first_step << "</td><td class=\"n\">"
        << process.last_step << "</td><td>" << escape_html(process.how) << "</td><td>" << escape_html(process.host)
        << "</td></tr>";
  }
  out << "</table></div>";
  return out.str();
}

}  // namespace

std::string configuration_section(const std::vector<ReportRun>& runs) {
  std::string html = "<h2>Configuration</h2>\n<div class=\"card\" id=\"configuration\">";
  html += runs.size() == 1 ? "<h3>What differs from the defaults</h3>" + differences_of_one(runs[0])
                           : "<h3>What differs between the runs</h3>" + differences_between(runs);
  for (const ReportRun& run : runs)
    html += whole_configuration(
        run, runs.size() == 1 ? "The whole configuration" : "The whole configuration of " + run.name);
  return html + "</div>\n";
}

std::string warnings_section(const std::vector<ReportRun>& runs) {
  std::string items;
  for (const ReportRun& run : runs)
    for (const std::string& warning : run.warnings)
      items += concat("<li>", runs.size() > 1 ? escape_html(run.name) + ": " : "", escape_html(warning), "</li>");
  const std::string list =
      items.empty() ? "<p class=\"soft\">None.</p>" : concat("<ul class=\"warnings\">", items, "</ul>");
  return concat("<h2>Warnings</h2>\n<div class=\"card\" id=\"warnings\">", list, "</div>\n");
}

std::string processes_section(const std::vector<ReportRun>& runs) {
  std::string html = "<h2>How it was run</h2>\n";
  for (const ReportRun& run : runs) {
    const std::string name = runs.size() > 1 ? concat("<h3>", escape_html(run.name), "</h3>") : "";
    html += concat("<div class=\"card\">", name, facts_table(run), process_table(run), "</div>\n");
  }
  return html;
}

}  // namespace vox
