#pragma once

#include "config/visitor.h"

namespace vox {

struct ValidationOptions {
  int64_t every = 1;  // epochs; 0: never
  std::string mode = "patches";
  int64_t patches = 16;
  std::string metric = "dice";  // best checkpoint by this
  std::string better = "auto";

  void describe(Visitor& v) {
    v.field("every", every,
            {.meaning = "Epochs between validations; 0 is never", .unit = "epochs", .min = 0, .max = 1e9});
    v.field("mode", mode,
            {.meaning = "Validate on patches, or on whole volumes by sliding window",
             .choices = {"patches", "sliding_window"}});
    v.field("patches", patches,
            {.meaning = "Patches of one validation, with mode: patches", .unit = "patches", .min = 1, .max = 1e9});
    v.field(
        "metric", metric,
        {.meaning =
             "Score or loss term that the best checkpoint has the best of; where nothing is said mae if data.target is "
             "regression, loss if no loss term is compared with the label"});
    v.field("better", better,
            {.meaning = "Which values of the metric are better; auto knows", .choices = {"auto", "higher", "lower"}});
  }
  bool operator==(const ValidationOptions&) const = default;
};

}  // namespace vox
