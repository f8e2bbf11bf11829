// The report's section on a profile: bars that begin where the one before ended, the cause and the changes that help.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "report/html_measured.h"
#include "report/html_text.h"

namespace vox {
namespace {

using nlohmann::json;

constexpr double kWidth = 760, kLabel = 150, kNumbers = 120, kRow = 22;
constexpr double kLeastShare = 0.0005;  // of the whole: below it a stage is not drawn
constexpr int kColours = 8;

struct Bar {
  std::string name;
  double ms = 0;
};

std::vector<Bar> bars_of(const json& stages) {
  std::vector<Bar> bars;
  for (const json& stage : stages) bars.push_back({stage.at("name").get<std::string>(), stage.at("ms").get<double>()});
  return bars;
}

double total_of(const std::vector<Bar>& bars) {
  double total = 0;
  for (const Bar& bar : bars) total += bar.ms;
  return total;
}

std::string ms_text(double ms) {
  return format_number(ms, ms < 10 ? 2 : 1) + " ms";
}

std::string number_text(double value) {
  return format_number(value, 1);
}

std::string short_label(const std::string& name) {  // the end of a long one says more
  constexpr size_t kRoom = 22;
  return name.size() <= kRoom ? name : ".." + name.substr(name.size() - kRoom + 2);
}

std::string waterfall_svg(std::vector<Bar> bars, const std::string& title) {
  const double whole = total_of(bars);
  std::erase_if(bars, [&](const Bar& bar) { return bar.ms < kLeastShare * whole; });
  if (bars.empty() || whole <= 0) return "";
  const double scale = (kWidth - kLabel - kNumbers) / whole;
  std::ostringstream out;
  out << "<div class=\"scroll\"><svg class=\"waterfall\" viewBox=\"0 0 " << kWidth << ' '
      << number_text(kRow * double(bars.size()) + 4) << "\" role=\"img\" aria-label=\"" << escape_html(title) << "\">";
  double before = 0;
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const double top = kRow * static_cast<double>(i) + 3, text = top + 12, left = kLabel + before * scale;
    const double width = std::max(1.0, bar.ms * scale);
    out << "<text x=\"" << number_text(kLabel - 8) << "\" y=\"" << number_text(text) << "\" text-anchor=\"end\">"
        << escape_html(short_label(bar.name)) << "</text><rect x=\"" << number_text(left) << "\" y=\""
        << number_text(top) << "\" width=\"" << number_text(width) << "\" height=\"16\" rx=\"2\" style=\"fill:var(--s"
        << i % kColours << ")\"></rect><text class=\"value\" x=\"" << number_text(kWidth) << "\" y=\""
        << number_text(text) << "\" text-anchor=\"end\">" << ms_text(bar.ms) << ", "
        << format_number(100 * bar.ms / whole, 1) << " %</text>";
    before += bar.ms;
  }
  return out.str() + "</svg></div>";
}

std::string suggestion_table(const json& profile) {
  const json suggestions = profile.value("suggestions", json::array());
  if (suggestions.empty()) return "";
  const double step_ms = profile.at("step_ms").get<double>();
  std::ostringstream out;
  out << "<h3>What would help, as the measured times predict</h3><div class=\"scroll\"><table "
         "class=\"wide\"><tr><th>change</th>"
         "<th class=\"n\">predicted step</th><th class=\"n\">times as fast</th><th>why</th></tr>";
  for (const json& one : suggestions) {
    const double predicted = one.at("predicted_step_ms").get<double>();
    out << "<tr><td><code>" << escape_html(one.at("change").get<std::string>()) << "</code></td><td class=\"n\">"
        << ms_text(predicted) << "</td><td class=\"n\">" << format_number(step_ms / predicted, 2) << "</td><td>"
        << escape_html(one.value("why", ""))
        << (one.value("same_result", true) ? "" : " <b>Changes what is learnt.</b>") << "</td></tr>";
  }
  return out.str() + "</table></div>";
}

std::string operation_table(const json& profile) {
  const json operations = profile.value("slowest_operations", json::array());
  if (!operations.is_array() || operations.empty()) return "";
  std::ostringstream out;
  out << "<details><summary>The slowest operations</summary><div class=\"scroll\"><table "
         "class=\"wide\"><tr><th>operation</th>"
         "<th class=\"n\">a step</th><th class=\"n\">calls</th></tr>";
  for (const json& one : operations)
    out << "<tr><td><code>" << escape_html(one.at("name").get<std::string>()) << "</code></td><td class=\"n\">"
        << ms_text(one.at("ms").get<double>()) << "</td><td class=\"n\">"
        << short_number(one.contains("calls") ? std::optional(one["calls"].get<double>()) : std::nullopt)
        << "</td></tr>";
  return out.str() + "</table></div></details>";
}

std::string more_waterfalls(const json& profile) {
  std::string html;
  const auto add = [&](const char* key, const char* title) {
    const std::vector<Bar> bars = bars_of(profile.value(key, json::array()));
    if (total_of(bars) > 0)
      html += concat("<details><summary>", title, ": ", ms_text(total_of(bars)), "</summary>",
                     waterfall_svg(bars, title), "</details>");
  };
  add("forward_stages", "The forward pass by stages of the network");
  add("gpu_stages", "On the GPU, by what enqueued it");
  return html;
}

// What the step reached of what this machine can do, and what its memory holds.
std::string use_table(const json& profile) {
  std::string rows;
  const json achieved = profile.value("achieved", json::object());
  const auto add = [&](const char* title, const char* rate, const char* ceiling, const char* unit) {
    const double reached = achieved.value(rate, 0.0), most = achieved.value(ceiling, 0.0);
    if (reached > 0 && most > 0)
      rows += concat("<tr><th>", title, "</th><td>", short_number(reached / 1e9), " of ", short_number(most / 1e9), " ",
                     unit, " measured here, ", format_number(100 * reached / most, 1), " %</td></tr>");
  };
  add("arithmetic", "flops_per_s", "ceiling_flops_per_s", "GFLOP/s");
  add("memory traffic, at least", "bytes_per_s", "ceiling_bytes_per_s", "GB/s");
  const json memory = profile.value("memory", json::object());
  if (memory.contains("by_kind_gb"))
    for (const auto& [kind, gb] : memory["by_kind_gb"].items())
      rows +=
          concat("<tr><th>memory: ", escape_html(kind), "</th><td>", short_number(gb.get<double>()), " GB</td></tr>");
  if (rows.empty()) return "";
  return concat("<details><summary>What the step reaches of this machine</summary><div class=\"scroll\"><table>", rows,
                "</table></div></details>");
}

std::string card_of(const json& profile) {
  const double step_ms = profile.at("step_ms").get<double>();
  const std::vector<Bar> step = bars_of(profile.at("waterfall").at("step")),
                         data = bars_of(profile.at("waterfall").at("data"));
  std::string html =
      concat("<p><b>", ms_text(step_ms), " a step</b>, ", short_number(profile.value("samples_per_s", 0.0)),
             " samples/s on ", profile.value("device", "cpu") == "cuda" ? "a GPU" : "the CPU", ", waiting for data ",
             ms_text(profile.value("data_wait_ms", 0.0)), "</p>");
  html += waterfall_svg(step, "Stages of a step");
  if (total_of(data) > 0)
    html += concat("<h3>Samples, beside the step: ", ms_text(total_of(data)), " of work a step</h3>",
                   waterfall_svg(data, "Stages of making samples"));
  const json& bottleneck = profile.at("bottleneck");
  html += concat("<p>Bottleneck: <b>", escape_html(bottleneck.at("name").get<std::string>()),
                 "</b>: ", escape_html(bottleneck.at("evidence").get<std::string>()), "</p>");
  return html + suggestion_table(profile) + operation_table(profile) + more_waterfalls(profile) + use_table(profile);
}

}  // namespace

std::string profile_card(const std::string& document) {
  try {
    return card_of(json::parse(document));
  } catch (const json::exception& problem) {
    throw Error(concat("this is not what `voxloom profile --json` prints: ", problem.what()));
  }
}

}  // namespace vox
