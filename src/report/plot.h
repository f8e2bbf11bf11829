// A line plot as inline SVG in a <figure>, with round ticks, a legend with last values, and hooks for the read-out.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace vox {

using Points = std::vector<std::pair<double, double>>;  // x (step), y; y may be not finite: a gap

struct Curve {
  std::string name;
  Points points;
  int colour = 0;       // one of the report's eight
  bool dashed = false;  // validation beside training
  bool smooth = false;  // draws the running mean, the values themselves faintly behind it
};

struct Plot {
  std::string id, title, unit;
  std::vector<Curve> curves;
  bool from_zero = false;  // the axis begins at 0
};

// "" where there is nothing to show.
std::string render_plot(const Plot& plot);

// At most `most` points, with the smallest and the largest of every stretch kept.
Points decimate(const Points& points, size_t most = 2000);
Points running_mean(const Points& points, size_t window);  // centred; values not finite stay as they are

// Round numbers (1, 2 or 5 times a power of ten) that cover low..high in about `wanted` steps.
std::vector<double> round_ticks(double low, double high, int wanted);

}  // namespace vox
