// Options of targets that more than the target itself looks at.
#pragma once

#include <cstdint>
#include <vector>

#include "config/visitor.h"

namespace vox {

struct OneHotOptions {
  std::vector<int64_t> classes{1};
  void describe(Visitor& v) {
    v.field("classes", classes, {.meaning = "Label value of each channel", .min = 0, .max = 255, .min_items = 1});
  }
};

}  // namespace vox
