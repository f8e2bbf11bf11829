// The report's section on a search for settings: the ladder of trials, and speed against memory.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "report/html_measured.h"
#include "report/html_text.h"
#include "report/plot.h"

namespace vox {
namespace {

using nlohmann::json;

constexpr double kWidth = 560, kHeight = 300, kLeft = 56, kRight = 548, kTop = 12, kBottom = 254;

struct Mark {
  std::string name;
  double memory = 0, speed = 0;
  bool start = false, chosen = false;
};

std::optional<double> number_in(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// Of the GPU, or of the process where there is none.
std::optional<double> memory_of(const json& trial) {
  const std::optional<double> of_gpu = number_in(trial, "gpu_memory_gb");
  return of_gpu ? of_gpu : number_in(trial, "memory_gb");
}

// The chosen one is the last that has the chosen changes: it may have been tried more than once.
std::vector<Mark> marks_of(const json& tune) {
  std::vector<Mark> marks;
  size_t chosen = 0;
  for (const json& trial : tune.at("trials")) {
    const std::optional<double> speed = number_in(trial, "samples_per_s"), memory = memory_of(trial);
    if (!speed || !memory || !(*speed > 0) || !(*memory > 0)) continue;
    marks.push_back({.name = trial.at("name").get<std::string>(),
                     .memory = *memory,
                     .speed = *speed,
                     .start = trial.at("changes").empty()});
    if (trial.at("changes") == tune.value("chosen", json::array())) chosen = marks.size();
  }
  if (chosen > 0) marks[chosen - 1].chosen = true;
  return marks;
}

std::string place(double value) {
  return format_number(value, 1);
}

struct Axis {
  double low = 0, high = 1, from = 0, to = 1;
  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

// Begins at 0 only where the values come near it: memory of all trials may differ by little.
Axis axis_of(const std::vector<Mark>& marks, double Mark::*value, double from, double to) {
  double low = INFINITY, high = -INFINITY;
  for (const Mark& mark : marks) low = std::min(low, mark.*value), high = std::max(high, mark.*value);
  const double margin = std::max(0.08 * (high - low), 0.02 * high);
  const double start = low < 0.4 * high ? 0 : low - margin;
  return {start, high + margin, from, to};
}

void draw_frame(std::ostream& out, const Axis& memory, const Axis& speed) {
  const auto digits = [](const std::vector<double>& ticks) {
    const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
    return std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  };
  const std::vector<double> rows = round_ticks(speed.low, speed.high, 5),
                            columns = round_ticks(memory.low, memory.high, 6);
  for (const double tick : rows)
    out << "<line class=\"grid\" x1=\"" << kLeft << "\" x2=\"" << kRight << "\" y1=\"" << place(speed.at(tick))
        << "\" y2=\"" << place(speed.at(tick)) << "\"/><text x=\"" << kLeft - 7 << "\" y=\""
        << place(speed.at(tick) + 4) << "\" text-anchor=\"end\">" << format_number(tick, digits(rows)) << "</text>";
  out << "<line class=\"axis\" x1=\"" << kLeft << "\" x2=\"" << kRight << "\" y1=\"" << kBottom << "\" y2=\"" << kBottom
      << "\"/>";
  for (const double tick : columns)
    out << "<line class=\"axis\" x1=\"" << place(memory.at(tick)) << "\" x2=\"" << place(memory.at(tick)) << "\" y1=\""
        << kBottom << "\" y2=\"" << kBottom + 4 << "\"/><text x=\"" << place(memory.at(tick)) << "\" y=\""
        << kBottom + 18 << "\" text-anchor=\"middle\">" << format_number(tick, digits(columns)) << "</text>";
  out << "<text x=\"" << kRight << "\" y=\"" << kHeight - 8 << "\" text-anchor=\"end\">memory, GB</text>";
}

std::string scatter(const std::vector<Mark>& marks) {
  if (marks.empty()) return "";
  const Axis memory = axis_of(marks, &Mark::memory, kLeft, kRight), speed = axis_of(marks, &Mark::speed, kBottom, kTop);
  std::ostringstream out;
  out << "<figure class=\"plot\" id=\"tune-scatter\" style=\"max-width:640px\"><h3>Speed against memory <span "
         "class=\"soft\">samples/s</span></h3><ul class=\"legend\">"
         "<li><i class=\"box\" style=\"background:var(--s7)\"></i>start</li><li><i class=\"box\" "
         "style=\"background:var(--s0)\"></i>tried</li><li><i class=\"box\" style=\"background:var(--s2)\"></i>chosen"
         "</li></ul><svg viewBox=\"0 0 "
      << kWidth << ' ' << kHeight << "\" role=\"img\" aria-label=\"Speed against memory\">";
  draw_frame(out, memory, speed);
  std::vector<const Mark*> order;  // what matters lies on top
  for (const Mark& mark : marks) order.push_back(&mark);
  std::stable_sort(order.begin(), order.end(),
                   [](const Mark* a, const Mark* b) { return a->start + 2 * a->chosen < b->start + 2 * b->chosen; });
  for (const Mark* mark : order) {
    const char* const colour = mark->chosen ? "s2" : mark->start ? "s7" : "s0";
    const std::string x = place(memory.at(mark->memory)), y = place(speed.at(mark->speed));
    if (mark->chosen)
      out << "<circle r=\"9\" cx=\"" << x << "\" cy=\"" << y
          << "\" style=\"fill:none;stroke:var(--s2);stroke-width:2\"/>";
    out << "<circle class=\"trial\" r=\"" << (mark->chosen || mark->start ? 5 : 4) << "\" cx=\"" << x << "\" cy=\"" << y
        << "\" style=\"fill:var(--" << colour << ");fill-opacity:.85\"><title>" << escape_html(mark->name) << ": "
        << short_number(mark->speed) << " samples/s, " << short_number(mark->memory) << " GB</title></circle>";
  }
  return out.str() + "</svg></figure>";
}

std::string ladder(const json& tune) {
  std::ostringstream out;
  out << "<div class=\"scroll\"><table class=\"wide\"><tr><th>settings</th><th>verdict</th><th "
         "class=\"n\">samples/s</th><th "
         "class=\"n\">step ms</th><th class=\"n\">predicted</th><th class=\"n\">data wait ms</th><th "
         "class=\"n\">GB</th>"
         "<th class=\"n\">gain</th><th class=\"n\">loss differs by</th><th></th></tr>";
  for (const json& trial : tune.at("trials")) {
    const auto cell = [](const std::optional<double>& value) {
      return concat("<td class=\"n\">", short_number(value), "</td>");
    };
    const auto number = [&](const char* key) { return cell(number_in(trial, key)); };
    out << "<tr><td class=\"whole\"><code>" << escape_html(trial.at("name").get<std::string>()) << "</code></td><td>"
        << escape_html(trial.at("verdict").get<std::string>()) << "</td>" << number("samples_per_s")
        << number("step_ms") << number("predicted_step_ms") << number("data_wait_ms") << cell(memory_of(trial))
        << number("gain") << number("loss_difference") << "<td class=\"soft\">" << escape_html(trial.value("note", ""))
        << "</td></tr>";
  }
  return out.str() + "</table></div>";
}

std::string outcome(const json& tune) {
  const json chosen = tune.value("chosen", json::array());
  if (chosen.empty()) return "<p>Nothing that was tried was kept.</p>";
  std::string html = "<p>Chosen:";
  for (const json& change : chosen) html += concat(" <code>", escape_html(change.get<std::string>()), "</code>");
  const json compared = tune.value("compared", json{});
  if (compared.is_object())
    html += concat(". Measured again in turns with the start: <b>", format_number(tune.at("speedup").get<double>(), 2),
                   " times the ", escape_html(tune.value("speedup_of", "samples")), " a second</b>");
  return html + ".</p>";
}

}  // namespace

std::string tune_card(const std::string& document) {
  try {
    const json tune = json::parse(document);
    return outcome(tune) + scatter(marks_of(tune)) + ladder(tune);
  } catch (const json::exception& problem) {
    throw Error(concat("this is not what `voxloom tune --json` prints: ", problem.what()));
  }
}

}  // namespace vox
