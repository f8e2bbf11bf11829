#include "report/html_sections.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "report/html_text.h"
#include "report/machine.h"

namespace vox {
namespace {

struct Figure {
  std::string name, value;
};

std::optional<double> last_of(const MetricsTable& metrics, const std::string& split, const std::string& column) {
  for (auto row = metrics.rows.rbegin(); row != metrics.rows.rend(); ++row)
    if (row->split == split)
      if (const std::optional<double> value = row->get(column)) return value;
  return std::nullopt;
}

std::optional<double> largest_of(const MetricsTable& metrics, const std::string& column) {
  std::optional<double> largest;
  for (const MetricsRow& row : metrics.rows) {
    const std::optional<double> value = row.get(column);
    if (value && std::isfinite(*value) && (!largest || *value > *largest)) largest = value;
  }
  return largest;
}

std::string seconds_at_work(const RunRecord& record) {
  double seconds = 0;
  for (const RunProcess& process : record.processes) {
    const double part = seconds_between(process.started, process.ended.empty() ? utc_now() : process.ended);
    if (std::isfinite(part)) seconds += part;
  }
  return human_seconds(seconds);
}

std::string with_unit(const std::optional<double>& value, int digits, const std::string& unit) {
  return value ? format_number(*value, digits) + unit : "-";
}

std::string wait_share(const MetricsTable& metrics) {
  const std::optional<double> wait = mean_of_training(metrics, "data_wait_ms"),
                              step = mean_of_training(metrics, "step_ms");
  return wait && step && *step > 0 ? format_number(100 * *wait / *step, 1) + " %" : "-";
}

std::vector<Figure> figures_of(const ReportRun& run) {
  const MetricsTable& metrics = run.metrics;
  std::vector<Figure> figures;
  const int64_t steps = metrics.rows.empty() ? 0 : metrics.rows.back().step;
  figures.push_back({"steps", std::to_string(steps)});
  figures.push_back({"training loss", short_number(last_of(metrics, "train", "loss"))});
  for (const char* score : {"dice", "iou", "mae"})
    if (last_of(metrics, "val", score))
      figures.push_back({concat("validation ", score), short_number(last_of(metrics, "val", score))});
  figures.push_back({"time", seconds_at_work(run.record)});
  figures.push_back({"step", with_unit(mean_of_training(metrics, "step_ms"), 1, " ms")});
  figures.push_back({"samples/s", short_number(mean_of_training(metrics, "samples_per_s"))});
  figures.push_back({"data wait", wait_share(metrics)});
  figures.push_back({"memory, peak", with_unit(largest_of(metrics, "host_rss_gb"), 1, " GB")});
  if (largest_of(metrics, "gpu_mem_gb"))
    figures.push_back({"GPU memory, peak", with_unit(largest_of(metrics, "gpu_mem_gb"), 1, " GB")});
  return figures;
}

std::string state_badge(const RunRecord& record) {
  return concat("<span class=\"state ", name_of(record.state), "\">", name_of(record.state), "</span>");
}

std::string comparison_table(const std::vector<ReportRun>& runs) {
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> values;
  for (const ReportRun& run : runs) {
    values.emplace_back();
    for (const Figure& figure : figures_of(run)) {
      if (std::find(names.begin(), names.end(), figure.name) == names.end()) names.push_back(figure.name);
      values.back()[figure.name] = figure.value;
    }
  }
  std::ostringstream out;
  out << "<div class=\"card scroll\" style=\"margin-top:18px\"><table><tr><th></th>";
  for (const ReportRun& run : runs) out << "<th class=\"n\">" << escape_html(run.name) << "</th>";
  out << "</tr>";
  for (const std::string& name : names) {
    out << "<tr><th>" << name << "</th>";
    for (const auto& of_run : values)
      out << "<td class=\"n\">" << (of_run.count(name) ? of_run.at(name) : "-") << "</td>";
    out << "</tr>";
  }
  out << "</table></div>\n";
  return out.str();
}

}  // namespace

std::optional<double> mean_of_training(const MetricsTable& metrics, const std::string& column) {
  std::vector<double> values;
  for (const MetricsRow& row : metrics.rows)
    if (row.split == "train")
      if (const std::optional<double> value = row.get(column); value && std::isfinite(*value)) values.push_back(*value);
  if (values.empty()) return std::nullopt;
  const size_t first = values.size() > 3 ? 1 : 0;
  double sum = 0;
  for (size_t i = first; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - first);
}

std::string header_section(const std::vector<ReportRun>& runs) {
  std::ostringstream out;
  for (const ReportRun& run : runs) {
    out << "<header><h1>" << escape_html(run.name) << "</h1>" << (run.trained ? state_badge(run.record) : "");
    if (!run.record.reason.empty()) out << "<span class=\"soft\">" << escape_html(run.record.reason) << "</span>";
    if (runs.size() == 1) out << "<p class=\"soft\">" << escape_html(run.record.machine) << "</p>";
    out << "</header>\n";
  }
  return out.str();
}

std::string figures_section(const std::vector<ReportRun>& runs) {
  if (runs.size() > 1) return comparison_table(runs);
  std::string tiles = "<div class=\"tiles\">";
  for (const Figure& figure : figures_of(runs[0]))
    tiles += concat("<div class=\"tile\"><b>", figure.value, "</b><span>", figure.name, "</span></div>");
  return tiles + "</div>\n";
}

namespace {

struct Stage {
  const char* name;
  double ms;
  int colour;
};

std::vector<Stage> stages_of(const MetricsTable& metrics) {
  const std::optional<double> step = mean_of_training(metrics, "step_ms");
  if (!step) return {};
  constexpr std::array<std::array<const char*, 2>, 6> kStages{{{"data_wait_ms", "waiting for data"},
                                                               {"transfer_ms", "transfer"},
                                                               {"forward_ms", "forward"},
                                                               {"loss_ms", "loss"},
                                                               {"backward_ms", "backward"},
                                                               {"optimizer_ms", "optimizer"}}};
  constexpr std::array<int, 6> kStageColours{1, 5, 0, 3, 2, 4};
  std::vector<Stage> stages;
  double rest = *step;
  for (size_t i = 0; i < kStages.size(); ++i) {
    const std::optional<double> ms = mean_of_training(metrics, kStages[i][0]);
    if (!ms) continue;
    stages.push_back({kStages[i][1], *ms, kStageColours[i]});
    rest -= *ms;
  }
  const bool detailed = stages.size() > 1;
  if (rest > 0) stages.push_back({detailed ? "other" : "computing", rest, detailed ? 7 : 0});
  return stages;
}

std::string stage_bar(const std::vector<Stage>& stages) {
  double total = 0;
  for (const Stage& stage : stages) total += stage.ms;
  std::ostringstream bar, legend;
  for (const Stage& stage : stages) {
    const std::string share = format_number(100 * stage.ms / total, 1);
    bar << "<div style=\"width:" << share << "%;background:var(--s" << stage.colour << ")\" title=\"" << stage.name
        << ' ' << share << " %\"></div>";
    legend << "<li><i class=\"box\" style=\"background:var(--s" << stage.colour << ")\"></i>" << stage.name << "<b>"
           << format_number(stage.ms, stage.ms < 10 ? 2 : 1) << " ms</b> <span class=\"soft\">" << share
           << " %</span></li>";
  }
  return concat("<div class=\"bar\">", bar.str(), "</div><ul class=\"legend\">", legend.str(), "</ul>");
}

std::string slice_figure(const SliceFiles& slice, const std::string& run_name) {
  const std::string input = embedded_png(slice.input);
  const auto panel = [&](const char* caption, const fs::path& over) {
    std::string html = concat("<div class=\"panel\"><div><img alt=\"", caption, "\" src=\"", input, "\">");
    if (!over.empty()) html += concat("<img class=\"over\" alt=\"\" src=\"", embedded_png(over), "\">");
    return html + concat("</div>", caption, "</div>");
  };
  std::string html = concat("<figure class=\"case card\"><figcaption>", escape_html(slice.case_id),
                            " <span class=\"soft\">", escape_html(run_name), "epoch ", slice.epoch,
                            "</span></figcaption><div class=\"panels\">", panel("input", {}));
  if (!slice.label.empty()) html += panel("label", slice.label);
  if (!slice.prediction.empty()) html += panel("prediction", slice.prediction);
  return html + "</div></figure>\n";
}

// The cases of the last epoch, and how the first of them came to be.
std::vector<SliceFiles> chosen_slices(const std::vector<SliceFiles>& all) {
  constexpr size_t kCases = 6, kEarlier = 3;
  std::vector<SliceFiles> last, earlier, chosen;
  for (const SliceFiles& slice : all)
    if (slice.epoch == all.back().epoch && last.size() < kCases) last.push_back(slice);
  for (const SliceFiles& slice : all)
    if (slice.epoch != all.back().epoch && slice.case_id == last.front().case_id) earlier.push_back(slice);
  const size_t count = std::min(kEarlier, earlier.size());
  for (size_t i = 0; i < count; ++i) chosen.push_back(earlier[i * earlier.size() / count]);
  chosen.insert(chosen.end(), last.begin(), last.end());
  return chosen;
}

}  // namespace

std::string time_section(const std::vector<ReportRun>& runs) {
  std::string rows;
  for (const ReportRun& run : runs) {
    const std::vector<Stage> stages = stages_of(run.metrics);
    if (stages.empty()) continue;
    const std::string name = runs.size() > 1 ? escape_html(run.name) + ", " : "";
    rows += concat("<h3>", name, short_number(mean_of_training(run.metrics, "step_ms")), " ms a step</h3>",
                   stage_bar(stages));
  }
  if (rows.empty()) return "";
  return "<h2>Where the time of a step goes</h2>\n<div class=\"card\" id=\"step-stages\">" + rows + "</div>\n";
}

std::string measured_section(const std::vector<ReportRun>& runs) {
  std::string html;
  const auto add = [&](const char* id, const char* title, std::string ReportRun::*card) {
    std::string cards;
    for (const ReportRun& run : runs) {
      if ((run.*card).empty()) continue;
      const std::string name = runs.size() > 1 ? concat("<h3>", escape_html(run.name), "</h3>") : "";
      cards += concat("<div class=\"card\">", name, run.*card, "</div>\n");
    }
    if (!cards.empty()) html += concat("<h2>", title, "</h2>\n<div id=\"", id, "\">", cards, "</div>\n");
  };
  add("profile", "Profile", &ReportRun::profile);
  add("tune", "Settings that were tried", &ReportRun::tune);
  return html;
}

std::string slices_section(const std::vector<ReportRun>& runs) {
  std::string figures;
  for (const ReportRun& run : runs) {
    if (run.slices.empty()) continue;
    for (const SliceFiles& slice : chosen_slices(run.slices))
      figures += slice_figure(slice, runs.size() > 1 ? run.name + ", " : "");
  }
  if (figures.empty()) return "";
  return concat(
      "<h2>Slices</h2>\n<label class=\"slider\">overlay <input id=\"overlay\" type=\"range\" min=\"0\" max=\"1\" "
      "step=\"0.05\" value=\"1\"></label>\n<div class=\"strip\">\n",
      figures, "</div>\n");
}

}  // namespace vox
