#pragma once

#include "config/visitor.h"

namespace vox {

struct MonitorOptions {
  int64_t log_every = 10;  // steps
  bool tensorboard = true;
  bool images = true;
  int64_t image_every = 1;  // epochs
  bool gradient_histograms = false;
  bool report = true;
  std::string progress = "auto";

  void describe(Visitor& v) {
    v.field("log_every", log_every,
            {.meaning = "Steps between the rows of metrics.csv", .unit = "steps", .min = 1, .max = 1e9});
    v.field("tensorboard", tensorboard, {.meaning = "Write event files for TensorBoard"});
    v.field("images", images, {.meaning = "Keep slices of input, label and prediction"});
    v.field("image_every", image_every,
            {.meaning = "Epochs between those slices", .unit = "epochs", .min = 1, .max = 1e9});
    v.field("gradient_histograms", gradient_histograms, {.meaning = "Write a histogram of every gradient"});
    v.field("report", report, {.meaning = "Write report.html"});
    v.field("progress", progress,
            {.meaning = "How the run shows where it is; auto is a bar on a terminal, lines elsewhere",
             .choices = {"auto", "bar", "lines", "off"}});
  }
  bool operator==(const MonitorOptions&) const = default;
};

}  // namespace vox
