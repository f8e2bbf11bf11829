#include "report/plot.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "report/html_text.h"

namespace vox {
namespace {

constexpr double kWidth = 460, kHeight = 250, kLeft = 52, kRight = 448, kTop = 10, kBottom = 222;
constexpr double kLogAbove = 100;     // values that span more than this are drawn on a logarithmic axis
constexpr size_t kDotsBelow = 40;     // so few points are marked one by one
constexpr size_t kSmoothAbove = 60;   // fewer points need no running mean
constexpr size_t kSmoothPieces = 40;  // the mean is over this part of a curve

struct Axes {
  double first = 0, last = 1;  // steps
  double low = 0, high = 1;    // values, or their logarithms
  bool log = false;

  double x(double step) const { return kLeft + (step - first) / (last - first) * (kRight - kLeft); }
  double y(double value) const {
    const double v = log ? std::log10(value) : value;
    return kBottom - (v - low) / (high - low) * (kBottom - kTop);
  }
};

bool drawable(double value, const Axes& axes) {
  return std::isfinite(value) && !(axes.log && value <= 0);
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

Axes axes_of(const Plot& plot) {
  Range steps, values;
  for (const Curve& curve : plot.curves) {
    for (const auto& [step, value] : curve.points) {
      if (!std::isfinite(value)) continue;
      steps.add(step);
      values.add(value);
    }
  }
  if (values.empty()) return {};
  Axes axes{.first = steps.low, .last = steps.high};
  if (axes.last == axes.first) axes.first -= 0.5, axes.last += 0.5;
  axes.log = !plot.from_zero && values.low > 0 && values.high / values.low > kLogAbove;
  axes.low = axes.log ? std::log10(values.low) : plot.from_zero ? std::min(0.0, values.low) : values.low;
  axes.high = axes.log ? std::log10(values.high) : values.high;
  double margin = 0.05 * (axes.high - axes.low);
  if (margin == 0) margin = axes.high == 0 ? 1 : 0.1 * std::abs(axes.high);
  if (!plot.from_zero || axes.low < 0) axes.low -= margin;
  axes.high += margin;
  return axes;
}

std::string coordinate(double value) {
  std::string text = format_number(value, 2);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string tick_text(double value, double step) {
  const double size = std::abs(value);
  if (size < 1e-12 * step || value == 0) return "0";
  if (size >= 1e4 && size < 1e6 && std::fmod(size, 100) == 0) return shortest(value / 1000) + "k";
  if (size >= 1e6 || step < 1e-4) return short_number(value);
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return format_number(value, digits);
}

void draw_line(std::ostream& out, const char* kind, double x1, double y1, double x2, double y2) {
  out << "<line class=\"" << kind << "\" x1=\"" << coordinate(x1) << "\" y1=\"" << coordinate(y1) << "\" x2=\""
      << coordinate(x2) << "\" y2=\"" << coordinate(y2) << "\"/>";
}

void draw_value_tick(std::ostream& out, double place, const std::string& text) {
  draw_line(out, "grid", kLeft, place, kRight, place);
  out << "<text x=\"" << coordinate(kLeft - 7) << "\" y=\"" << coordinate(place + 4) << "\" text-anchor=\"end\">"
      << text << "</text>";
}

void draw_log_ticks(std::ostream& out, const Axes& axes) {
  const bool few_decades = axes.high - axes.low < 3.5;
  for (int decade = static_cast<int>(std::floor(axes.low)); decade <= std::ceil(axes.high); ++decade) {
    for (const double factor : {1.0, 3.0}) {
      const double value = factor * std::pow(10.0, decade);
      if (std::log10(value) < axes.low || std::log10(value) > axes.high) continue;
      if (factor == 1.0 || few_decades) draw_value_tick(out, axes.y(value), short_number(value));
    }
  }
}

void draw_axes(std::ostream& out, const Axes& axes) {
  if (axes.log) {
    draw_log_ticks(out, axes);
  } else {
    const std::vector<double> ticks = round_ticks(axes.low, axes.high, 5);
    const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
    for (const double tick : ticks) draw_value_tick(out, axes.y(tick), tick_text(tick, step));
  }
  draw_line(out, "axis", kLeft, kBottom, kRight, kBottom);
  const std::vector<double> steps = round_ticks(axes.first, axes.last, 6);
  const double apart = steps.size() > 1 ? steps[1] - steps[0] : 1;
  for (const double step : steps) {
    if (step != std::round(step)) continue;  // half a step does not exist
    draw_line(out, "axis", axes.x(step), kBottom, axes.x(step), kBottom + 4);
    out << "<text x=\"" << coordinate(axes.x(step)) << "\" y=\"" << coordinate(kBottom + 18)
        << "\" text-anchor=\"middle\">" << tick_text(step, apart) << "</text>";
  }
}

std::string path_of(const Points& points, const Axes& axes) {
  std::string path;
  bool pen_down = false;
  for (const auto& [step, value] : points) {
    if (!drawable(value, axes)) {
      pen_down = false;
      continue;
    }
    path += concat(pen_down ? "L" : "M", coordinate(axes.x(step)), " ", coordinate(axes.y(value)));
    pen_down = true;
  }
  return path;
}

void draw_path(std::ostream& out, const std::string& kind, const Curve& curve, const std::string& path, int key) {
  if (path.empty()) return;
  out << "<path class=\"curve" << kind << "\" style=\"stroke:var(--s" << curve.colour << ")\" d=\"" << path << "\"";
  if (key >= 0) out << " data-key=\"" << key << "\"";
  out << "/>";
}

void draw_curve(std::ostream& out, const Curve& curve, const Axes& axes, int key) {
  const std::string dashed = curve.dashed ? " dashed" : "";
  const bool smooth = curve.smooth && curve.points.size() > kSmoothAbove;
  if (smooth) {
    draw_path(out, " raw", curve, path_of(decimate(curve.points), axes), -1);
    const Points mean = running_mean(curve.points, curve.points.size() / kSmoothPieces + 1);
    draw_path(out, dashed, curve, path_of(decimate(mean, 600), axes), key);
    return;
  }
  draw_path(out, dashed, curve, path_of(decimate(curve.points), axes), key);
  if (curve.points.size() >= kDotsBelow) return;
  for (const auto& [step, value] : curve.points) {
    if (!drawable(value, axes)) continue;
    out << "<circle r=\"2.4\" style=\"fill:var(--s" << curve.colour << ")\" cx=\"" << coordinate(axes.x(step))
        << "\" cy=\"" << coordinate(axes.y(value)) << "\"/>";
  }
}

std::string legend_of(const Plot& plot) {
  std::ostringstream out;
  out << "<ul class=\"legend\">";
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    const Curve& curve = plot.curves[i];
    if (curve.points.empty()) continue;
    out << "<li><i" << (curve.dashed ? " class=\"dash\"" : "") << " style=\"background:var(--s" << curve.colour
        << ");border-color:var(--s" << curve.colour << ")\"></i>" << escape_html(curve.name) << "<b data-value=\"" << i
        << "\">" << short_number(curve.points.back().second) << "</b></li>";
  }
  out << "</ul>";
  return out.str();
}

std::string note_of(const Plot& plot, const Axes& axes) {
  int64_t missing = 0;
  for (const Curve& curve : plot.curves)
    missing += std::count_if(curve.points.begin(), curve.points.end(),
                             [&](const auto& point) { return !std::isfinite(point.second); });
  std::string note = axes.log ? "logarithmic axis" : "";
  if (missing > 0)
    note += concat(note.empty() ? "" : "; ", missing, missing == 1 ? " value" : " values", " not finite");
  return note;
}

std::string axes_json(const Axes& axes) {
  return concat("{\"width\":", kWidth, ",\"left\":", kLeft, ",\"right\":", kRight, ",\"top\":", kTop,
                ",\"bottom\":", kBottom, ",\"first\":", shortest(axes.first), ",\"last\":", shortest(axes.last),
                ",\"low\":", shortest(axes.low), ",\"high\":", shortest(axes.high),
                ",\"log\":", axes.log ? "true" : "false", "}");
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int wanted) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double fraction = rough / power;
  const double step = power * (fraction < 1.5 ? 1 : fraction < 3.5 ? 2 : fraction < 7.5 ? 5 : 10);
  std::vector<double> ticks;
  for (double n = std::ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; ++n) ticks.push_back(n * step);
  return ticks;
}

Points decimate(const Points& points, size_t most) {
  if (points.size() <= most) return points;
  Points kept;
  const size_t stretches = most / 2;
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * i / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (i + 1) / stretches);
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    auto [low, high] = std::minmax_element(begin, end, less);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

Points running_mean(const Points& points, size_t window) {
  std::vector<double> sums(points.size() + 1), counts(points.size() + 1);
  for (size_t i = 0; i < points.size(); ++i) {
    const bool finite = std::isfinite(points[i].second);
    sums[i + 1] = sums[i] + (finite ? points[i].second : 0);
    counts[i + 1] = counts[i] + (finite ? 1 : 0);
  }
  Points means = points;
  const size_t half = window / 2;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!std::isfinite(points[i].second)) continue;
    const size_t begin = i < half ? 0 : i - half, end = std::min(i + half + 1, points.size());
    means[i].second = (sums[end] - sums[begin]) / (counts[end] - counts[begin]);
  }
  return means;
}

std::string render_plot(const Plot& plot) {
  if (std::all_of(plot.curves.begin(), plot.curves.end(), [](const Curve& curve) { return curve.points.empty(); }))
    return "";
  const Axes axes = axes_of(plot);
  std::ostringstream out;
  out << "<figure class=\"plot\" id=\"plot-" << plot.id << "\"><h3>" << escape_html(plot.title);
  if (!plot.unit.empty()) out << " <span class=\"soft\">" << escape_html(plot.unit) << "</span>";
  out << "</h3>" << legend_of(plot) << "<svg viewBox=\"0 0 " << kWidth << ' ' << kHeight
      << "\" role=\"img\" aria-label=\"" << escape_html(plot.title) << "\" data-axes='" << axes_json(axes) << "'>";
  draw_axes(out, axes);
  for (size_t i = 0; i < plot.curves.size(); ++i) draw_curve(out, plot.curves[i], axes, static_cast<int>(i));
  draw_line(out, "cursor", kLeft, kTop, kLeft, kBottom);
  out << "</svg><div class=\"note\">" << note_of(plot, axes)
      << "<span class=\"where\" style=\"float:right\">step</span>&nbsp;</div></figure>\n";
  return out.str();
}

}  // namespace vox
