// Curves of the report: which columns of metrics.csv become which plot.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "report/html_sections.h"
#include "report/html_text.h"
#include "report/plot.h"

namespace vox {
namespace {

constexpr int kColours = 8;

Points points_of(const MetricsTable& metrics, const std::string& split, const std::string& column, double factor = 1) {
  Points points;
  for (const MetricsRow& row : metrics.rows) {
    if (row.split != split) continue;
    if (const std::optional<double> value = row.get(column))
      points.emplace_back(static_cast<double>(row.step), *value * factor);
  }
  return points;
}

Points wait_percent(const MetricsTable& metrics) {
  Points points;
  for (const MetricsRow& row : metrics.rows) {
    const std::optional<double> wait = row.get("data_wait_ms"), step = row.get("step_ms");
    if (row.split == "train" && wait && step && *step > 0)
      points.emplace_back(static_cast<double>(row.step), 100 * *wait / *step);
  }
  return points;
}

std::string label(const std::vector<ReportRun>& runs, size_t run, const std::string& name) {
  if (runs.size() == 1) return name;
  return name.empty() ? runs[run].name : runs[run].name + " " + name;
}

int colour_of(size_t place) {
  return static_cast<int>(place % kColours);
}

std::vector<std::string> loss_terms(const std::vector<ReportRun>& runs) {
  std::vector<std::string> terms;
  for (const ReportRun& run : runs)
    for (const std::string& column : run.metrics.columns)
      if (column.starts_with("loss.") && std::find(terms.begin(), terms.end(), column) == terms.end())
        terms.push_back(column);
  return terms;
}

// In the order of the terms, so that a term has one colour in both plots.
std::vector<std::string> time_columns(const std::vector<ReportRun>& runs) {
  std::set<std::string> written;
  for (const ReportRun& run : runs) written.insert(run.metrics.columns.begin(), run.metrics.columns.end());
  std::vector<std::string> columns;
  for (const std::string& term : loss_terms(runs)) {
    const std::string column = term.substr(std::string("loss.").size()) + "_ms";
    if (written.contains(column)) columns.push_back(column);
  }
  return columns;
}

// Columns that only validation fills: its scores.
std::vector<std::string> score_columns(const std::vector<ReportRun>& runs) {
  const std::vector<std::string>& standard = standard_columns();
  std::vector<std::string> scores;
  for (const ReportRun& run : runs) {
    for (const std::string& column : run.metrics.columns) {
      if (column.starts_with("loss.") || column.ends_with("_ms")) continue;
      if (std::find(standard.begin(), standard.end(), column) != standard.end()) continue;
      if (std::find(scores.begin(), scores.end(), column) == scores.end()) scores.push_back(column);
    }
  }
  return scores;
}

Plot loss_plot(const std::vector<ReportRun>& runs) {
  Plot plot{.id = "loss", .title = "Loss"};
  for (size_t i = 0; i < runs.size(); ++i) {
    const int colour = colour_of(i), other = runs.size() == 1 ? 1 : colour;
    plot.curves.push_back({label(runs, i, runs.size() == 1 ? "training" : ""),
                           points_of(runs[i].metrics, "train", "loss"), colour, false, true});
    plot.curves.push_back({label(runs, i, "validation"), points_of(runs[i].metrics, "val", "loss"), other, true});
  }
  return plot;
}

// One run: all columns in one plot. Several: one plot a column, one curve a run.
std::string column_plots(const std::vector<ReportRun>& runs, const std::vector<std::string>& columns,
                         const std::string& split, const Plot& base) {
  const bool smooth = split == "train";
  const auto plain = [](const std::string& column) {
    if (column.ends_with("_ms")) return column.substr(0, column.size() - 3);
    return column.starts_with("loss.") ? column.substr(5) : column;
  };
  if (runs.size() == 1) {
    Plot plot = base;
    for (size_t i = 0; i < columns.size(); ++i)
      plot.curves.push_back(
          {plain(columns[i]), points_of(runs[0].metrics, split, columns[i]), colour_of(i), false, smooth});
    return render_plot(plot);
  }
  std::string plots;
  for (const std::string& column : columns) {
    Plot plot = base;
    plot.id += "-" + plain(column);
    plot.title += ": " + plain(column);
    for (size_t i = 0; i < runs.size(); ++i)
      plot.curves.push_back({runs[i].name, points_of(runs[i].metrics, split, column), colour_of(i), false, smooth});
    plots += render_plot(plot);
  }
  return plots;
}

Plot simple_plot(const std::vector<ReportRun>& runs, const std::string& column, Plot plot, double factor = 1) {
  const bool smooth = column != "lr";
  for (size_t i = 0; i < runs.size(); ++i)
    plot.curves.push_back({label(runs, i, runs.size() == 1 ? plot.title : ""),
                           points_of(runs[i].metrics, "train", column, factor), colour_of(i), false, smooth});
  return plot;
}

Plot wait_plot(const std::vector<ReportRun>& runs) {
  Plot plot{.id = "data-wait", .title = "Waiting for data", .unit = "% of a step", .from_zero = true};
  for (size_t i = 0; i < runs.size(); ++i)
    plot.curves.push_back({label(runs, i, runs.size() == 1 ? "data wait" : ""), wait_percent(runs[i].metrics),
                           colour_of(i), false, true});
  return plot;
}

Plot memory_plot(const std::vector<ReportRun>& runs) {
  Plot plot{.id = "memory", .title = "Memory", .unit = "GB", .from_zero = true};
  for (size_t i = 0; i < runs.size(); ++i) {
    const int colour = colour_of(i), other = runs.size() == 1 ? 1 : colour;
    plot.curves.push_back({label(runs, i, "process"), points_of(runs[i].metrics, "train", "host_rss_gb"), colour});
    plot.curves.push_back({label(runs, i, "GPU"), points_of(runs[i].metrics, "train", "gpu_mem_gb"), other, true});
  }
  return plot;
}

}  // namespace

std::string plots_section(const std::vector<ReportRun>& runs) {
  std::string plots = render_plot(loss_plot(runs));
  plots += column_plots(runs, loss_terms(runs), "train", {.id = "terms", .title = "Loss terms"});
  plots += column_plots(runs, time_columns(runs), "train",
                        {.id = "term-times", .title = "Time of loss terms", .unit = "ms a step", .from_zero = true});
  plots += column_plots(runs, score_columns(runs), "val", {.id = "scores", .title = "Validation"});
  plots += render_plot(simple_plot(runs, "lr", {.id = "lr", .title = "Learning rate", .from_zero = true}));
  plots += render_plot(simple_plot(runs, "grad_norm", {.id = "grad-norm", .title = "Gradient norm"}));
  plots += render_plot(
      simple_plot(runs, "step_ms", {.id = "step-time", .title = "Step time", .unit = "ms", .from_zero = true}));
  plots += render_plot(wait_plot(runs));
  plots += render_plot(memory_plot(runs));
  plots += render_plot(
      simple_plot(runs, "gpu_util", {.id = "gpu-use", .title = "GPU use", .unit = "%", .from_zero = true}, 100));
  if (plots.empty()) return "<p class=\"soft\">Nothing has been measured yet.</p>\n";
  return "<h2>Curves</h2>\n<div class=\"plots\">\n" + plots + "</div>\n";
}

}  // namespace vox
